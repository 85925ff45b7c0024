//! The tables of estimators and algorithms, from their registries.

use offing::algorithms::{EstimatorUse, Registry};
use offing::uncertainty::UncertaintyConfig;

use super::presets::{Setup, at};
use super::source::{Declared, Shape, Source, Variant};
use super::text::{code, prose, table, value};

/// Ids with what each computes.
pub(crate) fn estimators(source: &Source) -> String {
    let rows: Vec<Vec<String>> = kinds(source).iter().map(estimator).collect();
    table(&["id", "score", "looks at", "needs", "source"], &rows)
}

fn estimator(kind: &Variant) -> Vec<String> {
    let id = &kind.name;
    let [score, facts] = &kind.doc[..] else {
        panic!(
            "estimator `{id}`: wanted a doc comment of two paragraphs: the score, then \"Looks at …. Needs …. Source: ….\""
        )
    };
    let split = || {
        let (looks, rest) = facts.strip_prefix("Looks at ")?.split_once(". Needs ")?;
        let (needs, source) = rest.strip_suffix('.')?.split_once(". Source: ")?;
        Some((looks, needs, source))
    };
    let (looks, needs, source) = split().unwrap_or_else(|| {
        panic!("estimator `{id}`: wanted \"Looks at …. Needs …. Source: ….\", found \"{facts}\"")
    });
    let needs_critics = UncertaintyConfig::from_id(id).unwrap().needs_critics();
    assert_eq!(
        needs.contains("critics"),
        needs_critics,
        "estimator `{id}`: its doc comment on critics is wrong"
    );
    let score = prose(&[score.trim_end_matches('.').to_string()]);
    vec![code(id), score, looks.into(), needs.into(), source.into()]
}

/// What can be set, one line an estimator.
pub(crate) fn estimator_settings(source: &Source) -> String {
    let kinds = kinds(source);
    let (with, without): (Vec<&Variant>, Vec<&Variant>) =
        kinds.iter().partition(|kind| !source.fields_of(kind).is_empty());
    let mut lines: Vec<String> = with.into_iter().map(|kind| settings_line(source, kind)).collect();
    let without: Vec<String> = without.iter().map(|kind| code(&kind.name)).collect();
    if !without.is_empty() {
        lines.push(format!("- {}: nothing to set.", without.join(", ")));
    }
    lines.join("\n") + "\n"
}

fn settings_line(source: &Source, kind: &Variant) -> String {
    let user = kind.inner.as_ref().map(|inner| source.get(inner));
    let config = UncertaintyConfig::from_id(&kind.name).unwrap();
    let defaults = offing::config::to_table(&config).unwrap();
    let fields = source.fields_of(kind);
    let one = fields.iter().map(|field| {
        let shape = source.find(&field.ty, user).map(|ty| &ty.shape);
        let default = at(&defaults, std::slice::from_ref(&field.name)).map(value);
        let default = default.unwrap_or_else(|| field.unset(shape));
        let shown = if default == "none" { default.clone() } else { code(&default) };
        let others: Vec<String> = match shape {
            Some(Shape::Choices(all)) => all.iter().map(|it| it.name.clone()).collect(),
            Some(Shape::Kinds(all)) => all.iter().map(as_table).collect(),
            _ => Vec::new(),
        };
        let others: Vec<String> = others.iter().filter(|it| **it != default).map(|it| code(it)).collect();
        let others = if others.is_empty() { String::new() } else { format!(" (or {})", others.join(", ")) };
        format!("{} = {shown}{others}", code(&field.name))
    });
    format!("- {}: {}.", code(&kind.name), one.collect::<Vec<_>>().join("; "))
}

/// A kind as an inline table, with what it requires.
fn as_table(kind: &Variant) -> String {
    let required = kind.fields.iter().filter(|it| it.required);
    let required: String = required.map(|it| format!(",{}=…", it.name)).collect();
    format!("{{kind=\"{}\"{required}}}", kind.name)
}

fn kinds(source: &Source) -> Vec<Variant> {
    let Declared { shape: Shape::Kinds(kinds), .. } = source.get("UncertaintyConfig") else {
        panic!("`UncertaintyConfig`: wanted the list of `estimators!`")
    };
    kinds.clone()
}

/// Names with what each does. `page` is the way to an algorithm's page, `presets` that to presets/.
pub(crate) fn algorithms(setups: &[Setup], page: &dyn Fn(&str) -> String, presets: &str) -> String {
    let registry = Registry::default();
    let row = |spec: &offing::algorithms::AlgorithmSpec| {
        let own: Vec<&Setup> = setups.iter().filter(|it| it.algorithm == spec.name).collect();
        let link = |it: &&Setup| {
            let name = if it.is_base { &it.label } else { it.label.trim_start_matches(spec.name).trim() };
            format!("[`{name}`]({presets}{}.toml)", it.file)
        };
        let links: Vec<String> = own.iter().map(link).collect();
        let base = own.iter().find(|it| it.is_base).unwrap();
        vec![
            code(spec.name),
            spec.summary.into(),
            estimator_use(spec.estimators, base),
            links.join(", "),
            format!("[{}]({})", page_name(&page(spec.name)), page(spec.name)),
        ]
    };
    let rows: Vec<Vec<String>> = registry.specs().iter().map(row).collect();
    table(&["name", "what it does", "estimators", "presets", "page"], &rows)
}

fn estimator_use(accepted: EstimatorUse, base: &Setup) -> String {
    let critics: Vec<String> =
        UncertaintyConfig::all().iter().filter(|it| it.needs_critics()).map(|it| code(it.id())).collect();
    let which = match accepted {
        EstimatorUse::None => return "none".into(),
        EstimatorUse::Any => format!("any but {}", critics.join(", ")),
        EstimatorUse::WithCritics => "any".into(),
    };
    let default = at(&base.plain, &["uncertainty".into(), "kind".into()]).map(value).unwrap();
    format!("{which}; default {}", code(&default))
}

fn page_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap().trim_end_matches(".md")
}
