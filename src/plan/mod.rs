//! The operations of one step as plain data, and the one trait a device implements.

pub mod batch;
