//! (being written by cli)
