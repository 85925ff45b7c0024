//! The bodies' descriptions: read from the pinned wheels and patched in code for the physics asked for.
//!
//! D4RL's data come from an older MuJoCo that differs from today's in two ways that a description can undo:
//! before 2.1.2 a capsule weighed as much as a cylinder of half-length l + r/2 and turned like it, and until 3.5 the
//! margin of a contact was the larger of the two geoms' margins, while today it is their sum. MuJoCo 1.50 differs in a third
//! way, in impedances that start from 0, which needs help while stepping: see `Sim::advance`. D4RL's v2 data came after it.

use std::f64::consts::PI;

use offing::home::Home;
use offing::{Error, Result};
use xmltree::{Element, EmitterConfig, XMLNode};

use super::Simulated;
use crate::Physics;
use crate::engine::fetch;
use crate::engine::{Description, one_line};

/// An error here is what is wrong with the file, without its path.
type Parsed<T> = std::result::Result<T, String>;

/// The description of a task's body, and of the maze around it.
pub(super) fn body(home: &Home, task: &Simulated, physics: Physics) -> Result<Description> {
    let (dir, name) = (task.fetch_bodies(home, &mut |_| ())?, task.bodies[physics as usize]);
    let bytes = fetch::read(&dir, task.wheel, name)?;
    patch(&String::from_utf8_lossy(&bytes), physics, task).map_err(|what| Error::file(dir.join(name), what))
}

/// Applies the physics and builds the maze, if any.
fn patch(text: &str, physics: Physics, task: &Simulated) -> Parsed<Description> {
    let mut root =
        Element::parse(text.as_bytes()).map_err(|e| format!("not readable as MJCF: {}", one_line(&e)))?;
    if let Some(maze) = task.maze {
        let world = root.get_mut_child("worldbody").ok_or("wanted a <worldbody>, found none")?;
        world.children.extend(maze().walls().map(XMLNode::Element));
    }
    let mut old_impedance = None;
    if physics.is_old() {
        old_inertias(&mut root)?;
        halve_margins(&mut root)?;
    }
    if physics == Physics::Mujoco150 {
        if task.early_contact_forces {
            early_contact_forces(&mut root);
        }
        old_impedance = rising_impedance(&root)?;
        if old_impedance.is_some() {
            // Islands keep copies of what is amended while stepping; one body is one island anyway.
            add(&mut root, "option", |option| add(option, "flag", |flag| set(flag, "island", "disable")));
        }
    }
    let mut out = Vec::new();
    root.write_with_config(&mut out, EmitterConfig::new().write_document_declaration(false))
        .map_err(|e| format!("cannot be written back: {}", one_line(&e)))?;
    let xml = String::from_utf8(out).map_err(|e| one_line(&e))?;
    Ok(Description { xml, old_impedance })
}

/// The ceiling shared by all impedances, if they start from 0 (HalfCheetah's).
fn rising_impedance(root: &Element) -> Parsed<Option<f64>> {
    match (default::<3>(root, "geom", "solimp")?, default::<3>(root, "joint", "solimplimit")?) {
        (Some([0.0, geoms, _]), Some([0.0, joints, _])) if geoms == joints => Ok(Some(geoms)),
        (Some([0.0, ..]), _) | (_, Some([0.0, ..])) => {
            Err("wanted impedances of geoms and joints that rise from 0 to one value, found others".into())
        }
        _ => Ok(None),
    }
}

/// A sensor that makes the engine compute contact forces in the middle of a step, at the start of the last engine
/// step, as the engine behind gym-v2 did; [`Sim::contact_forces`](crate::engine::Sim::contact_forces) has those of its end.
fn early_contact_forces(root: &mut Element) {
    add(root, "sensor", |sensors| {
        add(sensors, "framelinacc", |sensor| {
            set(sensor, "objtype", "body");
            set(sensor, "objname", "torso");
        });
    });
}

/// Edits the child of that name, added first if missing.
fn add(parent: &mut Element, name: &str, edit: impl FnOnce(&mut Element)) {
    if parent.get_child(name).is_none() {
        parent.children.push(XMLNode::Element(Element::new(name)));
    }
    if let Some(child) = parent.get_mut_child(name) {
        edit(child);
    }
}

fn set(element: &mut Element, name: &str, value: &str) {
    element.attributes.insert(name.into(), value.into());
}

/// Halves the margin of every geom and geom default, so that today's sum is yesterday's maximum. (All geoms of one
/// body description share one margin.) Margins of joint limits kept their meaning and stay.
fn halve_margins(element: &mut Element) -> Parsed<()> {
    if element.name == "geom"
        && let Some([margin]) = optional(element, "margin")?
    {
        set(element, "margin", &(margin / 2.0).to_string());
    }
    children(element).try_for_each(halve_margins)
}

/// Writes the old mass and inertia of every body out as an explicit `<inertial>`.
fn old_inertias(root: &mut Element) -> Parsed<()> {
    let compiler = root.get_mut_child("compiler").ok_or("wanted a <compiler>, found none")?;
    set(compiler, "inertiafromgeom", "false");
    let degrees = compiler.attributes.get("angle").is_none_or(|unit| unit == "degree");
    let [density] = default(root, "geom", "density")?.unwrap_or([1000.0]);
    let world = root.get_mut_child("worldbody").ok_or("wanted a <worldbody>, found none")?;
    children(world).filter(|e| e.name == "body").try_for_each(|body| weigh(body, density, degrees))
}

/// Adds the `<inertial>` of one body, then of the bodies inside it.
fn weigh(body: &mut Element, density: f64, degrees: bool) -> Parsed<()> {
    let mut solids = Vec::new();
    for geom in children(body).filter(|e| e.name == "geom") {
        solids.push(Solid::of(geom, density, degrees)?);
    }
    if !solids.is_empty() {
        body.children.insert(0, XMLNode::Element(inertial(&solids)));
    }
    children(body).filter(|e| e.name == "body").try_for_each(|inner| weigh(inner, density, degrees))
}

/// A solid of revolution: mass, centre, unit axis, moments across and along it.
struct Solid {
    mass: f64,
    centre: [f64; 3],
    axis: [f64; 3],
    across: f64,
    along: f64,
}

impl Solid {
    fn of(geom: &Element, density: f64, degrees: bool) -> Parsed<Self> {
        match geom.attributes.get("type").map(String::as_str) {
            Some("capsule") => Self::capsule(geom, density, degrees),
            Some("sphere") => {
                let [r] = numbers(geom, "size")?;
                let mass = density * 4.0 / 3.0 * PI * r.powi(3);
                let moment = 0.4 * mass * r * r;
                let centre = optional(geom, "pos")?.unwrap_or_default();
                Ok(Self { mass, centre, axis: [0.0, 0.0, 1.0], across: moment, along: moment })
            }
            other => Err(format!("wanted capsules and spheres, found a geom of type {other:?}")),
        }
    }

    /// The cylinder that stood for a capsule before MuJoCo 2.1.2.
    fn capsule(geom: &Element, density: f64, degrees: bool) -> Parsed<Self> {
        let (centre, axis, r, half) = if let Some([a, b, c, x, y, z]) = optional(geom, "fromto")? {
            let along = [x - a, y - b, z - c];
            let length = along.iter().map(|v| v * v).sum::<f64>().sqrt();
            let centre = [(a + x) / 2.0, (b + y) / 2.0, (c + z) / 2.0];
            (centre, along.map(|v| v / length), numbers::<1>(geom, "size")?[0], length / 2.0)
        } else {
            let [r, half] = numbers(geom, "size")?;
            (optional(geom, "pos")?.unwrap_or_default(), axis(geom, degrees)?, r, half)
        };
        let height = 2.0 * (half + r / 2.0);
        let mass = density * PI * r * r * height;
        let across = mass * (3.0 * r * r + height * height) / 12.0;
        Ok(Self { mass, centre, axis, across, along: mass * r * r / 2.0 })
    }
}

/// The `<inertial>` of solids joined together.
fn inertial(solids: &[Solid]) -> Element {
    let mass: f64 = solids.iter().map(|s| s.mass).sum();
    let mut element = Element::new("inertial");
    let mut set = |name: &str, values: &[f64]| {
        // Rust writes the shortest text that reads back as the same number.
        let text: Vec<String> = values.iter().map(f64::to_string).collect();
        element.attributes.insert(name.into(), text.join(" "));
    };
    set("mass", &[mass]);
    if let [s] = solids {
        set("pos", &s.centre);
        set("zaxis", &s.axis);
        set("diaginertia", &[s.across, s.across, s.along]);
    } else {
        let centre: [f64; 3] =
            std::array::from_fn(|i| solids.iter().map(|s| s.mass * s.centre[i]).sum::<f64>() / mass);
        let mut tensor = [[0.0; 3]; 3];
        for s in solids {
            let d: [f64; 3] = std::array::from_fn(|i| s.centre[i] - centre[i]);
            let square = d.iter().map(|v| v * v).sum::<f64>();
            for i in 0..3 {
                for j in 0..3 {
                    let same = if i == j { s.across + s.mass * square } else { 0.0 };
                    tensor[i][j] +=
                        same + (s.along - s.across) * s.axis[i] * s.axis[j] - s.mass * d[i] * d[j];
                }
            }
        }
        let [[xx, xy, xz], [_, yy, yz], [_, _, zz]] = tensor;
        set("pos", &centre);
        set("fullinertia", &[xx, yy, zz, xy, xz, yz]);
    }
    element
}

/// Where a geom's z axis points in its body.
fn axis(geom: &Element, degrees: bool) -> Parsed<[f64; 3]> {
    if let Some(q) = optional::<4>(geom, "quat")? {
        let norm = q.iter().map(|v| v * v).sum::<f64>().sqrt();
        let [w, x, y, z] = q.map(|v| v / norm);
        return Ok([2.0 * (x * z + w * y), 2.0 * (y * z - w * x), w * w - x * x - y * y + z * z]);
    }
    if let Some([x, y, z, angle]) = optional(geom, "axisangle")? {
        let norm = (x * x + y * y + z * z).sqrt();
        let [x, y, z] = [x, y, z].map(|v| v / norm);
        let (sin, cos) = if degrees { angle.to_radians() } else { angle }.sin_cos();
        // Rodrigues' formula on (0, 0, 1).
        return Ok([
            y * sin + x * z * (1.0 - cos),
            -x * sin + y * z * (1.0 - cos),
            cos + z * z * (1.0 - cos),
        ]);
    }
    Ok([0.0, 0.0, 1.0])
}

/// An attribute of the model's defaults for a kind of element, where it is given.
fn default<const N: usize>(root: &Element, kind: &str, name: &str) -> Parsed<Option<[f64; N]>> {
    let element = root.get_child("default").and_then(|defaults| defaults.get_child(kind));
    element.map_or(Ok(None), |element| optional(element, name))
}

/// The numbers of an attribute, where it is given.
fn optional<const N: usize>(element: &Element, name: &str) -> Parsed<Option<[f64; N]>> {
    element.attributes.contains_key(name).then(|| numbers(element, name)).transpose()
}

/// Exactly `N` numbers of an attribute.
fn numbers<const N: usize>(element: &Element, name: &str) -> Parsed<[f64; N]> {
    let text = element.attributes.get(name).map_or("", String::as_str);
    let values: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    values.try_into().map_err(|_| format!("<{} {name}>: wanted {N} numbers, found `{text}`", element.name))
}

fn children(element: &mut Element) -> impl Iterator<Item = &mut Element> {
    element.children.iter_mut().filter_map(XMLNode::as_mut_element)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::layout::model as at;
    use crate::tasks::find;
    use crate::testing::shared;

    /// Masses of all bodies, the world's first.
    fn masses(task: &str, physics: Physics) -> Vec<f64> {
        let model = shared().model_of(find(task).unwrap().0, physics).unwrap();
        // SAFETY: one mass a body.
        unsafe { model.array(at::BODY_MASS, model.nbody) }.to_vec()
    }

    #[test]
    fn old_capsules_weigh_as_much_as_cylinders() {
        // Hopper's torso: radius .05, half-length .2, so a height of .45.
        let torso = 1000.0 * PI * 0.05 * 0.05 * 0.45;
        assert!((masses("hopper", Physics::D4rlV2)[1] - torso).abs() < 1e-12);
        let capsule = 1000.0 * PI * 0.05 * 0.05 * (0.4 + 4.0 / 3.0 * 0.05);
        assert!((masses("hopper", Physics::GymnasiumV4)[1] - capsule).abs() < 1e-12);
    }

    #[test]
    fn the_cheetah_weighs_fourteen_kilograms_under_any_physics() {
        for physics in Physics::ALL {
            assert!((masses("halfcheetah", physics).iter().sum::<f64>() - 14.0).abs() < 1e-9, "{physics}");
        }
    }

    #[test]
    fn joined_solids_have_the_inertia_of_their_sum() {
        // Two points on the x axis, with moments of their own.
        let solid =
            |x| Solid { mass: 2.0, centre: [x, 0.0, 0.0], axis: [0.0, 0.0, 1.0], across: 0.5, along: 0.25 };
        let element = inertial(&[solid(-1.0), solid(3.0)]);
        assert_eq!(numbers::<3>(&element, "pos").unwrap(), [1.0, 0.0, 0.0]);
        assert_eq!(numbers::<6>(&element, "fullinertia").unwrap(), [1.0, 17.0, 16.5, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn axes_follow_quaternions_and_angles() {
        let geom = |name: &str, value: &str| {
            let mut geom = Element::new("geom");
            set(&mut geom, name, value);
            geom
        };
        let near = |a: [f64; 3], b: [f64; 3]| a.iter().zip(b).all(|(x, y)| (x - y).abs() < 1e-12);
        assert!(near(axis(&geom("quat", "1 0 -1 0"), true).unwrap(), [-1.0, 0.0, 0.0]));
        assert!(near(axis(&geom("axisangle", "0 1 0 90"), true).unwrap(), [1.0, 0.0, 0.0]));
        assert!(near(axis(&geom("axisangle", "2 0 0 1.5707963267948966"), false).unwrap(), [0.0, -1.0, 0.0]));
    }

    #[test]
    fn margins_of_geoms_are_halved_and_of_joints_kept() {
        let text = r#"<m><default><geom margin="0.01"/></default><joint margin="0.01"/></m>"#;
        let mut root = Element::parse(text.as_bytes()).unwrap();
        halve_margins(&mut root).unwrap();
        let geom = root.get_child("default").and_then(|d| d.get_child("geom")).unwrap();
        assert_eq!(geom.attributes["margin"], "0.005");
        assert_eq!(root.get_child("joint").unwrap().attributes["margin"], "0.01");
    }

    #[test]
    fn a_damaged_description_is_one_clear_line() {
        for text in [
            "",
            "<html>",
            "<mujoco/>",
            r#"<mujoco><compiler/><worldbody><body><geom type="box"/></body></worldbody></mujoco>"#,
        ] {
            let error = patch(text, Physics::D4rlV2, find("hopper").unwrap().0).unwrap_err();
            assert!(!error.is_empty() && error.lines().count() == 1, "{text}: {error}");
        }
    }
}
