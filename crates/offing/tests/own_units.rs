//! The example in its own units beats the operator whose log it learns from.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "../examples/own_units.rs"]
mod own_units;

#[test]
fn a_policy_learnt_in_kelvin_and_pascal_beats_its_operator() {
    let [operator, learnt] = own_units::run().unwrap();
    assert!(learnt > operator + 5.0, "{learnt} against {operator}");
}
