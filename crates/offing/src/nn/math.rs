//! Elementary functions without branches, so that loops over them become vector code; within 2 ulp where noted.
//!
//! The standard library's are calls, one element at a time, and an ensemble step needs three million of them.

/// How to compute a·b + c. Decided where a loop is compiled for a machine, so that it costs nothing in the loop.
pub trait Arithmetic {
    /// a·b + c
    fn mul_add(a: f32, b: f32, c: f32) -> f32;
}

/// Two roundings. For code that is compiled for no machine in particular.
#[derive(Clone, Copy, Debug)]
pub struct Plain;

/// One rounding, by the machine's instruction. Use only in code compiled for a machine that has it.
#[derive(Clone, Copy, Debug)]
pub struct Fused;

/// One rounding, for machines that may lack the instruction: the bits of [`Fused`] by sums and products of f64, which become
/// vector code. The standard library's would be a call for each number.
#[derive(Clone, Copy, Debug)]
pub struct Emulated;

impl Arithmetic for Plain {
    #[inline(always)]
    fn mul_add(a: f32, b: f32, c: f32) -> f32 {
        a * b + c
    }
}

impl Arithmetic for Fused {
    #[inline(always)]
    fn mul_add(a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }
}

impl Arithmetic for Emulated {
    #[inline(always)]
    fn mul_add(a: f32, b: f32, c: f32) -> f32 {
        if cfg!(target_arch = "aarch64") {
            return a.mul_add(b, c); // part of every such machine
        }
        // The product of two f32 is exact in f64. The sum is not, and rounding it again to f32 could go the wrong way:
        // so the first rounding is made "to odd", after which the second is right (Boldo and Melquiond 2008).
        let (p, c) = (f64::from(a) * f64::from(b), f64::from(c));
        let sum = p + c;
        let shadow = sum - p;
        let lost = (p - (sum - shadow)) + (c - shadow);
        let bits = sum.to_bits();
        // Where something was lost from an even sum, step towards the exact one: away from zero if the lost part has
        // the sum's sign.
        let away = (lost > 0.0) == (sum > 0.0);
        let odd = if away { bits.wrapping_add(1) } else { bits.wrapping_sub(1) };
        let inexact = lost != 0.0 && lost.is_finite() && bits & 1 == 0;
        f64::from_bits(if inexact { odd } else { bits }) as f32
    }
}

/// e^x, relative error below 2e-7; 0 below -87.3, largest finite below 88.7.
#[inline(always)]
pub fn exp<A: Arithmetic>(x: f32) -> f32 {
    // Adding 1.5·2²³ rounds to the nearest integer in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let x = x.clamp(-87.3, 88.3);
    let shifted = A::mul_add(x, std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    // ln 2 in two parts: the first has few bits, so n times it is exact.
    let r = A::mul_add(n, 2.121_944_4e-4, A::mul_add(n, -0.693_359_4, x));
    let p = A::mul_add(1.987_569_1e-4, r, 1.398_199_9e-3);
    let p = A::mul_add(p, r, 8.333_452e-3);
    let p = A::mul_add(p, r, 4.166_579_6e-2);
    let p = A::mul_add(p, r, 1.666_666_5e-1);
    let p = A::mul_add(p, r, 0.5);
    let p = A::mul_add(p, r * r, r) + 1.0;
    let power = (shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32).wrapping_add(127) << 23;
    p * f32::from_bits(power as u32)
}

/// ln x for positive normal x, relative error below 2e-7 away from 1.
#[inline(always)]
pub fn ln<A: Arithmetic>(x: f32) -> f32 {
    // x = m·2^e with m in [√½, √2).
    let bits = x.to_bits() as i32;
    let e = (bits - 0x3f35_04f3) >> 23;
    let m = f32::from_bits((bits - (e << 23)) as u32);
    let (e, r) = (e as f32, m - 1.0);
    let z = r * r;
    let p = A::mul_add(7.037_683_6e-2, r, -1.151_461e-1);
    let p = A::mul_add(p, r, 1.167_699_9e-1);
    let p = A::mul_add(p, r, -1.242_014_1e-1);
    let p = A::mul_add(p, r, 1.424_932_3e-1);
    let p = A::mul_add(p, r, -1.666_805_8e-1);
    let p = A::mul_add(p, r, 2.000_071_5e-1);
    let p = A::mul_add(p, r, -2.499_999_4e-1);
    let p = A::mul_add(p, r, 0.333_333_3);
    let y = A::mul_add(p * r, z, A::mul_add(e, -2.121_944_4e-4, -0.5 * z));
    r + y + e * 0.693_359_4
}

/// ln(1 + e^x), without overflow and without losing small values.
#[inline(always)]
pub fn softplus<A: Arithmetic>(x: f32) -> f32 {
    let t = exp::<A>(-x.abs());
    let u = 1.0 + t;
    // What rounding 1 + t lost, to first order.
    x.max(0.0) + ln::<A>(u) + (t - (u - 1.0)) / u
}

/// 1 / (1 + e^-x).
#[inline(always)]
pub fn sigmoid<A: Arithmetic>(x: f32) -> f32 {
    1.0 / (1.0 + exp::<A>(-x))
}

/// tanh x, relative error below 3e-7.
#[inline(always)]
pub fn tanh<A: Arithmetic>(x: f32) -> f32 {
    let z = x * x;
    let p = A::mul_add(-5.704_988_7e-3, z, 0.020_639_09);
    let p = A::mul_add(p, z, -5.373_971_6e-2);
    let p = A::mul_add(p, z, 1.333_144_2e-1);
    let p = A::mul_add(p, z, -0.333_332_8);
    let near = A::mul_add(p * z, x, x);
    let t = exp::<A>(-2.0 * x.abs());
    let far = ((1.0 - t) / (1.0 + t)).copysign(x);
    if x.abs() < 0.625 { near } else { far }
}

/// ln(1 − tanh² z) = 2 (ln 2 − z − softplus(−2z)): finite for every z, where the direct form is ln 0 beyond |z| ≈ 9.
#[inline(always)]
pub fn ln_one_minus_tanh_squared<A: Arithmetic>(z: f32) -> f32 {
    let z = z.abs();
    2.0 * (std::f32::consts::LN_2 - z - softplus::<A>(-2.0 * z))
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

    fn all<A: Arithmetic>() {
        check("exp", exp::<A>, f64::exp, (-87.0, 88.0), 0.0);
        check("ln", ln::<A>, f64::ln, (1e-6, 50.0), 6e-8);
        check("sigmoid", sigmoid::<A>, |x| 1.0 / (1.0 + (-x).exp()), (-80.0, 80.0), 0.0);
        check("tanh", tanh::<A>, f64::tanh, (-12.0, 12.0), 0.0);
        check("softplus", softplus::<A>, |x| x.max(0.0) + (-x.abs()).exp().ln_1p(), (-80.0, 80.0), 1e-37);
        check("log jacobian", ln_one_minus_tanh_squared::<A>, |z| -2.0 * z.cosh().ln(), (-40.0, 40.0), 3e-7);
        for x in [-1e30, -1e4, -0.0, 0.0, 1e4] {
            assert!(softplus::<A>(x).is_finite() && tanh::<A>(x).abs() <= 1.0 && sigmoid::<A>(x).is_finite());
            assert!(ln_one_minus_tanh_squared::<A>(x).is_finite());
        }
        assert!(exp::<A>(1000.0).is_finite() && exp::<A>(-1000.0) < 1e-37);
    }

    #[test]
    fn functions_agree_with_double_precision_and_extremes_stay_finite() {
        all::<Plain>();
        all::<Emulated>();
        all::<Fused>();
    }

    /// Numbers of all sizes, and pairs that nearly cancel, where a second rounding shows.
    #[test]
    fn an_emulated_multiply_add_is_rounded_once() {
        let mut rng = crate::rng::Rng::stream(0, "fma", 0);
        let mut draw = |size: i32| {
            let exponent = (rng.below(2 * size as usize) as i32 - size).clamp(-140, 120);
            let mantissa = f32::from_bits(0x3f80_0000 | (rng.bits() as u32 & 0x007f_ffff));
            let sign = if rng.bits() & 1 == 0 { 1.0 } else { -1.0 };
            (f64::from(sign * mantissa) * 2f64.powi(exponent)) as f32
        };
        for i in 0..300_000 {
            let size = [3, 30, 130][i % 3];
            let (a, b) = (draw(size), draw(size));
            let c = if i % 2 == 0 { draw(size) } else { -(a * b) * (1.0 + draw(3) * 6e-8) };
            let (got, want) = (Emulated::mul_add(a, b, c), a.mul_add(b, c));
            assert!(
                got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(),
                "{a}·{b} + {c}: {got}, {want}"
            );
        }
        let odd = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            f32::MIN_POSITIVE,
            1e-45,
            f32::MAX,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::NAN,
        ];
        for (a, b, c) in odd.iter().flat_map(|&a| odd.iter().flat_map(move |&b| odd.map(move |c| (a, b, c))))
        {
            let (got, want) = (Emulated::mul_add(a, b, c), a.mul_add(b, c));
            assert!(
                got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(),
                "{a}·{b} + {c}: {got}, {want}"
            );
        }
    }
}
