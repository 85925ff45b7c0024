//! Policies that act in a simulator.
