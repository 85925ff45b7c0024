//! docs/settings.md: every table of settings with its keys, defaults and doc comments.

use offing::algorithms::Registry;

use super::notes::Key;
use super::presets::{Setup, defaults_with};
use super::source::{Declared, Field, Shape, Source, Variant};
use super::text::{code, prose, table};

/// One algorithm for each struct of settings, by name. Sections follow the registry's order; a table that several share
/// comes once.
fn roots(source: &Source) -> Vec<(&'static str, &'static str)> {
    let mut roots: Vec<(&str, &str)> = Vec::new();
    for spec in Registry::default().specs() {
        let path = (spec.settings_type)();
        let name = path.rsplit("::").next().unwrap_or(path);
        // A struct around another's settings (MOBILE's) adds nothing.
        let is_new = roots.iter().all(|(_, known)| *known != name);
        let is_table = |declared: &Declared| matches!(declared.shape, Shape::Struct(_));
        if is_new && source.find(name, None).is_some_and(is_table) {
            roots.push((spec.name, name));
        }
    }
    roots
}

/// What the page is made from.
pub(crate) struct Settings<'a> {
    pub(crate) source: &'a Source,
    pub(crate) setups: &'a [Setup],
    /// The page of an algorithm, seen from docs/.
    pub(crate) page: &'a dyn Fn(&str) -> String,
}

struct Section<'a> {
    name: String,
    /// Algorithms that have this table.
    users: Vec<&'a str>,
    text: String,
}

/// Where a setting is: below which key, of which algorithm, with which kinds chosen.
#[derive(Clone)]
struct Place {
    root: &'static str,
    path: Vec<String>,
    kinds: Vec<(Vec<String>, String)>,
    /// Assignments that choose these kinds.
    sets: Vec<String>,
}

/// The rows of a table, and the tables with kinds that belong below it.
#[derive(Default)]
struct Rows {
    rows: Vec<Vec<String>>,
    tagged: Vec<(Place, Declared)>,
}

impl Settings<'_> {
    /// The generated part of the page.
    pub(crate) fn render(&self) -> String {
        let mut sections: Vec<Section<'_>> = Vec::new();
        for (root, name) in roots(self.source) {
            let declared = self.source.get(name);
            let Shape::Struct(fields) = &declared.shape else { panic!("`{name}`: wanted a struct") };
            let place = Place { root, path: Vec::new(), kinds: Vec::new(), sets: Vec::new() };
            let mut alone = Vec::new();
            for field in fields {
                match self.source.find(&field.ty, Some(declared)) {
                    Some(ty) if matches!(ty.shape, Shape::Struct(_) | Shape::Kinds(_)) => {
                        if !sections.iter().any(|known| known.name == field.name) {
                            sections.push(self.section(&place, field, ty));
                        }
                    }
                    _ => alone.push(field.clone()),
                }
            }
            if !alone.is_empty() {
                let doc = format!("{} Its own keys stand at the top level.", prose(&declared.doc));
                let body = self.rows(&place, &alone, declared).table();
                sections.push(self.titled(root.into(), vec![root], &doc, &body));
            }
        }
        self.check_complete(&sections);
        let links: Vec<String> = sections.iter().map(|it| format!("[`{0}`](#{0})", it.name)).collect();
        let mut out = format!("{}\n", links.join(" · "));
        let mut anchors: Vec<&str> = Vec::new();
        for Section { name, users, text } in &sections {
            // Pages of algorithms link to their own part by the algorithm's name.
            if let [only] = users[..]
                && only != name
                && !anchors.contains(&only)
            {
                anchors.push(only);
                out += &format!("\n<a id=\"{only}\"></a>\n");
            }
            out += &format!("\n## `{name}`\n\n{text}");
        }
        out
    }

    /// The tables of a new algorithm must not be forgotten.
    fn check_complete(&self, sections: &[Section<'_>]) {
        for setup in self.setups {
            for key in setup.plain.keys() {
                assert!(
                    sections.iter().any(|it| it.name == *key || it.name == setup.algorithm),
                    "`{key}` of {} has no section: its struct of settings was not found in crates/offing/src",
                    setup.algorithm
                );
            }
        }
    }

    fn section(&self, root: &Place, field: &Field, ty: &Declared) -> Section<'_> {
        let place = root.below(&field.name);
        let rows = match &ty.shape {
            Shape::Kinds(kinds) => self.kinds(&place, kinds, ty, None),
            Shape::Struct(fields) => self.rows(&place, fields, ty),
            _ => unreachable!("a section is a table"),
        };
        let doc = prose(if ty.doc.is_empty() { &field.doc } else { &ty.doc });
        let having = self.setups.iter().filter(|it| it.is_base && it.plain.contains_key(&field.name));
        let users = having.map(|it| it.algorithm).collect();
        self.titled(field.name.clone(), users, &doc, &(rows.table() + &self.tagged(&rows)))
    }

    fn titled<'a>(&self, name: String, users: Vec<&'a str>, doc: &str, body: &str) -> Section<'a> {
        let all = self.setups.iter().filter(|it| it.is_base).count();
        let scope = match users[..] {
            [only] => format!("Used by [{only}]({}) only.", (self.page)(only)),
            _ if users.len() == all => "Used by all algorithms.".into(),
            _ => format!("Used by {}.", users.iter().map(|it| code(it)).collect::<Vec<_>>().join(", ")),
        };
        Section { name, users, text: format!("{doc} {scope}\n\n{body}") }
    }

    /// The tables with kinds below a table.
    fn tagged(&self, rows: &Rows) -> String {
        let one = |(place, ty): &(Place, Declared)| {
            let Shape::Kinds(kinds) = &ty.shape else { unreachable!("collected for its kinds") };
            let default = place.kind_key().read(&defaults_with(place.root, &place.sets).unwrap());
            let rows = self.kinds(place, kinds, ty, default.as_deref());
            let (name, doc) = (place.path.join("."), prose(&ty.doc));
            format!("\n### `{name}`\n\n{doc}\n\n{}{}", rows.table(), self.tagged(&rows))
        };
        rows.tagged.iter().map(one).collect()
    }

    /// The rows of a struct: its own keys first, then those of the tables in it.
    fn rows(&self, place: &Place, fields: &[Field], user: &Declared) -> Rows {
        let mut found = Rows::default();
        let mut nested = Rows::default();
        for field in fields {
            let below = place.below(&field.name);
            let ty = self.source.find(&field.ty, Some(user)).filter(|_| !field.list);
            let shape = ty.map(|ty| &ty.shape);
            let more = match shape {
                Some(Shape::Struct(fields)) => {
                    nested.extend(self.rows(&below, fields, ty.unwrap()));
                    continue;
                }
                Some(Shape::Kinds(_)) => format!(" Kinds: [below](#{}).", below.path.concat()),
                Some(Shape::Choices(choices)) => choices_text(&below, choices),
                _ => String::new(),
            };
            found.rows.push(self.row(&below, field, shape, &more));
            if let Some(ty) = ty.filter(|ty| matches!(ty.shape, Shape::Kinds(_))) {
                found.tagged.push((below, ty.clone()));
            }
        }
        found.extend(nested);
        found
    }

    fn row(&self, place: &Place, field: &Field, shape: Option<&Shape>, more: &str) -> Vec<String> {
        let name = place.path.join(".");
        assert!(!field.doc.is_empty(), "{name}: wanted a doc comment, found none");
        let is_tagged = matches!(shape, Some(Shape::Kinds(_)));
        let key = if is_tagged { place.kind_key() } else { place.key(field.unset(shape)) };
        let defaults = defaults_with(place.root, &place.sets).unwrap();
        let default = match field.required {
            true => "required".into(),
            // A key of the whole that is not written down at its default.
            false if place.path.len() == 1 => key.read(&defaults).unwrap_or_else(|| field.unset(shape)),
            false => key.read(&defaults).unwrap(),
        };
        let notes = if is_tagged { String::new() } else { key.notes(&default, self.setups) };
        let shown = if field.required || default == "none" { default } else { code(&default) };
        vec![String::new(), code(&name), shown, prose(&field.doc) + more, notes]
    }

    /// The rows of a table with kinds: each kind, then its keys. Without a `default`, every preset chooses a kind itself.
    fn kinds(&self, place: &Place, kinds: &[Variant], user: &Declared, default: Option<&str>) -> Rows {
        let mut found = Rows::default();
        for kind in kinds {
            let fields = self.source.fields_of(kind);
            let inner = kind.inner.as_ref().map_or(user, |inner| self.source.get(inner));
            // What follows the first paragraph is for a table of its own.
            let doc = prose(&kind.doc[..1]);
            let (mark, users) = match default {
                Some(default) if default == kind.name => ("default".into(), String::new()),
                _ => (String::new(), place.kind_key().users(&kind.name, self.setups)),
            };
            found.rows.push(vec![code(&kind.name), String::new(), mark, doc, users]);
            found.extend(self.rows(&place.of_kind(kind, &fields), &fields, inner));
        }
        found
    }
}

/// The choices that the algorithm accepts.
fn choices_text(place: &Place, choices: &[Variant]) -> String {
    let accepted = |choice: &&Variant| {
        let mut sets = place.sets.clone();
        sets.push(format!("{}={}", place.path.join("."), choice.name));
        defaults_with(place.root, &sets).is_some()
    };
    let text = |choice: &Variant| format!("<br>• {}: {}", code(&choice.name), prose(&choice.doc));
    choices.iter().filter(accepted).map(text).collect()
}

impl Place {
    fn below(&self, key: &str) -> Self {
        let mut below = self.clone();
        below.path.push(key.into());
        below
    }

    fn key(&self, unset: String) -> Key {
        Key { path: self.path.clone(), kinds: self.kinds.clone(), unset }
    }

    fn kind_key(&self) -> Key {
        self.below("kind").key("none".into())
    }

    /// The same place with a kind chosen; what the kind requires is filled in.
    fn of_kind(&self, kind: &Variant, fields: &[Field]) -> Self {
        let (mut chosen, name) = (self.clone(), self.path.join("."));
        chosen.kinds.push((self.path.clone(), kind.name.clone()));
        let required = fields.iter().filter(|it| it.required);
        let filled: String = required.map(|it| format!(",{}={}", it.name, it.example())).collect();
        chosen.sets.push(format!("{name}={{kind=\"{}\"{filled}}}", kind.name));
        let works = defaults_with(self.root, &chosen.sets).is_some();
        assert!(works, "{name} of kind {}: offing refuses its defaults", kind.name);
        chosen
    }
}

impl Rows {
    fn extend(&mut self, more: Self) {
        self.rows.extend(more.rows);
        self.tagged.extend(more.tagged);
    }

    fn table(&self) -> String {
        table(&["kind", "key", "default", "what", "presets"], &self.rows)
    }
}
