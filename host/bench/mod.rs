//! Measuring programs and their reports.
