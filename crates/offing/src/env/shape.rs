//! What a simulator shows of itself: the solid parts of a body and its scene.

/// The form of a solid part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outline {
    /// A ball; `size[0]` is its radius.
    Sphere,
    /// A cylinder along its own z-axis with round ends; `size[0]` is its radius, `size[1]` half the cylinder's length.
    Capsule,
    /// A box; `size` holds half its edges.
    Box,
}

/// A solid part where it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Its form.
    pub outline: Outline,
    /// Its extent, as [`Outline`] says.
    pub size: [f64; 3],
    /// Its centre.
    pub centre: [f64; 3],
    /// Its rotation matrix, row by row.
    pub rotation: [f64; 9],
}

impl Shape {
    /// Both ends of its long axis: centres of a capsule's round ends, twice the centre of a ball, two opposite corners of the
    /// smallest upright box around a box.
    pub fn ends(&self) -> [[f64; 3]; 2] {
        let reach: [f64; 3] = std::array::from_fn(|i| match self.outline {
            Outline::Sphere => 0.0,
            Outline::Capsule => self.rotation[3 * i + 2] * self.size[1],
            Outline::Box => (0..3).map(|j| (self.rotation[3 * i + j] * self.size[j]).abs()).sum(),
        });
        [-1.0, 1.0].map(|sign| std::array::from_fn(|i| self.centre[i] + sign * reach[i]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A quarter turn about y: z becomes x.
    const QUARTER: [f64; 9] = [0.0, 0.0, 1.0, 0.0, 1.0, 0.0, -1.0, 0.0, 0.0];

    #[test]
    fn ends_follow_the_rotation() {
        let shape =
            |outline| Shape { outline, size: [1.0, 2.0, 3.0], centre: [10.0, 0.0, 5.0], rotation: QUARTER };
        assert_eq!(shape(Outline::Capsule).ends(), [[8.0, 0.0, 5.0], [12.0, 0.0, 5.0]]);
        assert_eq!(shape(Outline::Sphere).ends(), [[10.0, 0.0, 5.0]; 2]);
        assert_eq!(shape(Outline::Box).ends(), [[7.0, -2.0, 4.0], [13.0, 2.0, 6.0]]);
    }
}
