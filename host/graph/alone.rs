//! Exchange between PEs, for builds without worlds: no graph is distributed.

use super::edges::{GraphError, GraphOnEngine};
use super::params::{Claims as ClaimParameters, GraphReport as Report};
use crate::engine::Args;
use crate::memory::Region;

/// Kind of a union of what PEs have found.
#[derive(Clone, Copy, Debug)]
pub(super) enum Union {
    Trees,
    Least,
}

/// Memory of claims. There is none.
#[derive(Debug)]
pub(super) enum Claims {}

impl Claims {
    pub(super) fn reset(&self) -> Result<(), GraphError> {
        match *self {}
    }
}

/// Memory and kernels of exchanges. There are none.
#[derive(Debug)]
pub(super) enum Mirrors {}

impl Mirrors {
    pub(super) fn new(_: &GraphOnEngine) -> Result<Option<Self>, GraphError> {
        Ok(None)
    }

    pub(super) fn end(&self, _: &Report, _: u64, _: Option<(&Region, usize)>) -> Result<Report, GraphError> {
        match *self {}
    }

    pub(super) fn fail(&self) {
        match *self {}
    }

    pub(super) fn unite(&self, _: Union, _: (&Region, usize)) -> Result<(), GraphError> {
        match *self {}
    }

    pub(super) fn firsts(&self) -> &[u64] {
        match *self {}
    }

    pub(super) fn ranks(&self) -> Vec<u32> {
        match *self {}
    }

    pub(super) fn add_up(&self, _: &Region) -> Result<(), GraphError> {
        match *self {}
    }

    pub(super) fn message_words(&self) -> usize {
        match *self {}
    }

    pub(super) fn send(&self, _: &Region, _: usize) -> Result<(), GraphError> {
        match *self {}
    }

    pub(super) fn claims(&self, _: &str, _: usize) -> Result<Claims, GraphError> {
        match *self {}
    }

    pub(super) fn next_claims(&self, _: &Claims) -> ClaimParameters {
        match *self {}
    }

    pub(super) unsafe fn exchange_claims(&self, _: &Claims, _: &str, _: Args) -> Result<(), GraphError> {
        match *self {}
    }
}
