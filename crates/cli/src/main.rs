//! The command line of offing.

fn main() {}
