//! Counts a connection as active while it lives.

use crate::metrics::ListenerCells;

/// Adds one to `connections_active` until dropped.
#[derive(Debug)]
pub(super) struct Active<'a>(&'a ListenerCells);

impl<'a> Active<'a> {
    pub(super) fn new(cells: &'a ListenerCells) -> Self {
        cells.connections_active.add(1);
        Self(cells)
    }
}

impl Drop for Active<'_> {
    fn drop(&mut self) {
        self.0.connections_active.sub(1);
    }
}
