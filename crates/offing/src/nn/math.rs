//! Elementary functions without branches, so that loops over them become vector code; within 2 ulp where noted.
//!
//! The standard library's are calls, one element at a time: at 30 ns each they would cost as much as a tenth of an
//! ensemble step.

/// e^x, relative error below 2e-7; 0 below -87.3, largest finite below 88.7.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // Adding 1.5·2²³ rounds to the nearest integer in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let x = x.clamp(-87.3, 88.3);
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    // ln 2 in two parts: the first has few bits, so n times it is exact.
    let r = x - n * 0.693_359_4 + n * 2.121_944_4e-4;
    let p = 1.987_569_1e-4;
    let p = p * r + 1.398_199_9e-3;
    let p = p * r + 8.333_452e-3;
    let p = p * r + 4.166_579_6e-2;
    let p = p * r + 1.666_666_5e-1;
    let p = p * r + 0.5;
    let p = p * r * r + r + 1.0;
    let power = (shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32).wrapping_add(127) << 23;
    p * f32::from_bits(power as u32)
}

/// ln x for positive normal x, relative error below 2e-7 away from 1.
#[inline(always)]
pub fn ln(x: f32) -> f32 {
    // x = m·2^e with m in [√½, √2).
    let bits = x.to_bits() as i32;
    let e = (bits - 0x3f35_04f3) >> 23;
    let m = f32::from_bits((bits - (e << 23)) as u32);
    let (e, r) = (e as f32, m - 1.0);
    let z = r * r;
    let p = 7.037_683_6e-2;
    let p = p * r - 1.151_461e-1;
    let p = p * r + 1.167_699_9e-1;
    let p = p * r - 1.242_014_1e-1;
    let p = p * r + 1.424_932_3e-1;
    let p = p * r - 1.666_805_8e-1;
    let p = p * r + 2.000_071_5e-1;
    let p = p * r - 2.499_999_4e-1;
    let p = p * r + 3.333_333_1e-1;
    let y = p * r * z - e * 2.121_944_4e-4 - 0.5 * z;
    r + y + e * 0.693_359_4
}

/// ln(1 + e^x), without overflow and without losing small values.
#[inline(always)]
pub fn softplus(x: f32) -> f32 {
    let t = exp(-x.abs());
    let u = 1.0 + t;
    // What rounding 1 + t lost, to first order.
    x.max(0.0) + ln(u) + (t - (u - 1.0)) / u
}

/// 1 / (1 + e^-x).
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// tanh x, relative error below 3e-7.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    let z = x * x;
    let p = -5.704_988_7e-3;
    let p = p * z + 2.063_908_9e-2;
    let p = p * z - 5.373_971_6e-2;
    let p = p * z + 1.333_144_2e-1;
    let p = p * z - 3.333_328_2e-1;
    let near = p * z * x + x;
    let t = exp(-2.0 * x.abs());
    let far = ((1.0 - t) / (1.0 + t)).copysign(x);
    if x.abs() < 0.625 { near } else { far }
}

/// ln(1 − tanh² z) = 2 (ln 2 − z − softplus(−2z)): finite for every z, where the direct form is ln 0 beyond |z| ≈ 9.
#[inline(always)]
pub fn ln_one_minus_tanh_squared(z: f32) -> f32 {
    let z = z.abs();
    2.0 * (std::f32::consts::LN_2 - z - softplus(-2.0 * z))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, ours: fn(f32) -> f32, truth: fn(f64) -> f64, range: (f64, f64), absolute: f64) {
        for i in 0..=200_000 {
            let x = (range.0 + (range.1 - range.0) * f64::from(i) / 200_000.0) as f32;
            let (got, want) = (f64::from(ours(x)), truth(f64::from(x)));
            let bound = 3e-7 * want.abs() + absolute;
            assert!((got - want).abs() <= bound, "{name}({x}) = {got}, want {want}");
        }
    }

    #[test]
    fn functions_agree_with_double_precision() {
        check("exp", exp, f64::exp, (-87.0, 88.0), 0.0);
        check("ln", ln, f64::ln, (1e-6, 50.0), 6e-8);
        check("sigmoid", sigmoid, |x| 1.0 / (1.0 + (-x).exp()), (-80.0, 80.0), 0.0);
        check("tanh", tanh, f64::tanh, (-12.0, 12.0), 0.0);
        check("softplus", softplus, |x| x.max(0.0) + (-x.abs()).exp().ln_1p(), (-80.0, 80.0), 1e-37);
        check("log jacobian", ln_one_minus_tanh_squared, |z| -2.0 * z.cosh().ln(), (-40.0, 40.0), 3e-7);
    }

    #[test]
    fn extremes_stay_finite() {
        for x in [-1e30, -1e4, -0.0, 0.0, 1e4] {
            assert!(softplus(x).is_finite() && tanh(x).abs() <= 1.0 && sigmoid(x).is_finite());
            assert!(ln_one_minus_tanh_squared(x).is_finite());
        }
        assert!(exp(1000.0).is_finite() && exp(-1000.0) < 1e-37);
    }
}
