//! The controller as a driver sees it.

mod admin;
mod driver;
mod faults;
mod io;
mod lifecycle;
