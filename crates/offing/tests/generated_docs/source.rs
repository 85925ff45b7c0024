//! Types of the library as its source files declare them: names, doc comments, and what serde makes of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Attribute, Expr, ExprLit, Fields, Ident, Item, Lit, LitStr, Meta, Token, Type};

/// All types with serde in the crate, by name.
pub(crate) struct Source {
    types: BTreeMap<String, Vec<Declared>>,
}

/// A type.
#[derive(Clone)]
pub(crate) struct Declared {
    file: PathBuf,
    pub(crate) doc: Vec<String>,
    pub(crate) shape: Shape,
}

/// What a type is made of.
#[derive(Clone)]
pub(crate) enum Shape {
    Struct(Vec<Field>),
    /// An enum written as a word.
    Choices(Vec<Variant>),
    /// An enum written as a table with a `kind`.
    Kinds(Vec<Variant>),
    /// An enum with a form of its own in files.
    Opaque,
}

#[derive(Clone)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) doc: Vec<String>,
    /// The type's name, without `Option`, `Vec` and the like around it.
    pub(crate) ty: String,
    pub(crate) optional: bool,
    pub(crate) list: bool,
    /// Whether a file has to give it.
    pub(crate) required: bool,
}

#[derive(Clone)]
pub(crate) struct Variant {
    /// The name in files.
    pub(crate) name: String,
    pub(crate) doc: Vec<String>,
    pub(crate) is_default: bool,
    pub(crate) fields: Vec<Field>,
    /// The struct that holds the fields, for `Variant(Struct)`.
    pub(crate) inner: Option<String>,
}

impl Source {
    /// Reads every file below `root` but tests.
    pub(crate) fn read(root: &Path) -> Self {
        let mut source = Self { types: BTreeMap::new() };
        let mut files = Vec::new();
        rust_files(root, &mut files);
        for file in files {
            let text = fs::read_to_string(&file).unwrap();
            let parsed = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
            source.add(&file, parsed.items);
        }
        source
    }

    fn add(&mut self, file: &Path, items: Vec<Item>) {
        for item in items {
            let (name, doc, shape) = match item {
                Item::Struct(it) if has_serde(&it.attrs) => {
                    let all_default = words(&it.attrs).contains_key("default");
                    (it.ident.to_string(), doc(&it.attrs), Shape::Struct(fields(&it.fields, all_default)))
                }
                Item::Enum(it) if has_serde(&it.attrs) => {
                    (it.ident.to_string(), doc(&it.attrs), enum_shape(&it))
                }
                Item::Macro(it) if it.mac.path.is_ident("estimators") => {
                    let list: Estimators = it.mac.parse_body().unwrap_or_else(|e| {
                        panic!(
                            "{}: `estimators!` is not a list of \"id\" => Variant(Settings): {e}",
                            file.display()
                        )
                    });
                    ("UncertaintyConfig".into(), Vec::new(), Shape::Kinds(list.0))
                }
                Item::Mod(it) if !is_test(&it.attrs) => {
                    self.add(file, it.content.map(|(_, items)| items).unwrap_or_default());
                    continue;
                }
                _ => continue,
            };
            self.types.entry(name).or_default().push(Declared { file: file.into(), doc, shape });
        }
    }

    /// The type of that name, `None` for one that is not the crate's own. Of several the one declared beside `user` counts.
    pub(crate) fn find(&self, name: &str, user: Option<&Declared>) -> Option<&Declared> {
        let found = self.types.get(name)?;
        let beside = found.iter().find(|it| user.is_some_and(|user| user.file == it.file));
        match (&found[..], beside) {
            ([only], _) => Some(only),
            (_, Some(beside)) => Some(beside),
            (several, None) => {
                let files: Vec<String> = several.iter().map(|it| it.file.display().to_string()).collect();
                panic!(
                    "`{name}` is the name of {} types ({}); give each its own",
                    files.len(),
                    files.join(", ")
                )
            }
        }
    }

    /// As [`find`](Self::find), for a type that has to exist.
    pub(crate) fn get(&self, name: &str) -> &Declared {
        self.find(name, None).unwrap_or_else(|| {
            panic!("no type `{name}` with serde in crates/offing/src: after a rename, change it in tests/generated_docs")
        })
    }

    /// The fields of a kind: its own, or those of the struct it holds.
    pub(crate) fn fields_of(&self, kind: &Variant) -> Vec<Field> {
        let Some(inner) = &kind.inner else { return kind.fields.clone() };
        match &self.get(inner).shape {
            Shape::Struct(fields) => fields.clone(),
            _ => panic!("`{inner}`: wanted a struct with the settings of `{}`", kind.name),
        }
    }
}

impl Field {
    /// What it means that a table does not have the key.
    pub(crate) fn unset(&self, shape: Option<&Shape>) -> String {
        let unset = match (shape, self.ty.as_str()) {
            _ if self.optional => None,
            (Some(Shape::Choices(all)), _) => all.iter().find(|it| it.is_default).map(|it| it.name.clone()),
            // Not written down at its default: see `skip_serializing_if` in the settings.
            (None, "bool") => Some("false".into()),
            (None, "f32" | "f64") => Some("0.0".into()),
            _ => None,
        };
        unset.unwrap_or_else(|| "none".into())
    }

    /// A value for a key without a default.
    pub(crate) fn example(&self) -> &'static str {
        match (self.ty.as_str(), self.list) {
            ("String", false) => "\"obs[0] > 0\"",
            (_, true) => "[1, 1]",
            _ => "1",
        }
    }
}

fn rust_files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.to_string_lossy().ends_with(".rs") && !path.to_string_lossy().ends_with("tests.rs") {
            found.push(path);
        }
    }
    found.sort();
}

/// The body of `estimators!`.
struct Estimators(Vec<Variant>);

impl Parse for Estimators {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let mut all = Vec::new();
        while !input.is_empty() {
            let attrs = input.call(Attribute::parse_outer)?;
            let id: LitStr = input.parse()?;
            input.parse::<Token![=>]>()?;
            input.parse::<Ident>()?;
            let settings;
            syn::parenthesized!(settings in input);
            let inner = Some(named(&settings.parse()?).0);
            input.parse::<Option<Token![,]>>()?;
            let (doc, name) = (doc(&attrs), id.value());
            all.push(Variant { name, doc, is_default: false, fields: Vec::new(), inner });
        }
        Ok(Self(all))
    }
}

fn enum_shape(it: &syn::ItemEnum) -> Shape {
    let own = words(&it.attrs);
    if own.contains_key("try_from") || own.contains_key("untagged") {
        return Shape::Opaque;
    }
    let casing = own.get("rename_all").map_or("", String::as_str);
    let variants = it.variants.iter().map(|variant| {
        let ident = variant.ident.to_string();
        let name = words(&variant.attrs).remove("rename").unwrap_or_else(|| renamed(&ident, casing));
        let inner = match &variant.fields {
            Fields::Unnamed(it) => it.unnamed.first().map(|field| named(&field.ty).0),
            _ => None,
        };
        let fields = if inner.is_some() { Vec::new() } else { fields(&variant.fields, false) };
        let is_default = variant.attrs.iter().any(|a| a.path().is_ident("default"));
        Variant { name, doc: doc(&variant.attrs), is_default, fields, inner }
    });
    let variants = variants.collect();
    if own.contains_key("tag") { Shape::Kinds(variants) } else { Shape::Choices(variants) }
}

fn fields(all: &Fields, all_default: bool) -> Vec<Field> {
    let named_fields = all.iter().filter_map(|field| Some((field, field.ident.as_ref()?)));
    let read = |(field, ident): (&syn::Field, &Ident)| {
        let (ty, around) = named(&field.ty);
        let optional = around.iter().any(|it| it == "Option");
        Field {
            name: words(&field.attrs).remove("rename").unwrap_or_else(|| ident.to_string()),
            doc: doc(&field.attrs),
            ty,
            optional,
            list: around.iter().any(|it| it == "Vec" || it == "["),
            required: !(all_default || optional || words(&field.attrs).contains_key("default")),
        }
    };
    named_fields.map(read).collect()
}

/// The innermost name of a type, and what is around it.
fn named(ty: &Type) -> (String, Vec<String>) {
    match ty {
        Type::Array(array) => {
            let (name, mut around) = named(&array.elem);
            around.insert(0, "[".into());
            (name, around)
        }
        Type::Path(path) => {
            let last = path.path.segments.last().unwrap();
            let inner = match &last.arguments {
                syn::PathArguments::AngleBracketed(it) => it.args.iter().find_map(|arg| match arg {
                    syn::GenericArgument::Type(ty) => Some(named(ty)),
                    _ => None,
                }),
                _ => None,
            };
            match inner {
                Some((name, mut around)) => {
                    around.insert(0, last.ident.to_string());
                    (name, around)
                }
                None => (last.ident.to_string(), Vec::new()),
            }
        }
        // No setting has such a type; other structs with serde do.
        _ => (String::new(), Vec::new()),
    }
}

/// The paragraphs of a doc comment.
fn doc(attrs: &[Attribute]) -> Vec<String> {
    let lines = attrs.iter().filter_map(|attr| match &attr.meta {
        Meta::NameValue(it) if it.path.is_ident("doc") => match &it.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value().trim().to_string()),
            _ => None,
        },
        _ => None,
    });
    let lines: Vec<String> = lines.collect();
    lines.split(String::is_empty).filter(|p| !p.is_empty()).map(|p| p.join(" ")).collect()
}

/// What `#[serde(…)]` says: words with their values.
fn words(attrs: &[Attribute]) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for meta in attrs.iter().filter(|a| a.path().is_ident("serde")).flat_map(list) {
        let value = match &meta {
            Meta::NameValue(it) => match &it.value {
                Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => text.value(),
                _ => String::new(),
            },
            _ => String::new(),
        };
        all.insert(meta.path().segments.last().unwrap().ident.to_string(), value);
    }
    all
}

fn list(attr: &Attribute) -> Vec<Meta> {
    attr.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated).unwrap().into_iter().collect()
}

fn has_serde(attrs: &[Attribute]) -> bool {
    let derives = attrs.iter().filter(|a| a.path().is_ident("derive")).flat_map(list);
    derives.into_iter().any(|it| it.path().segments.last().unwrap().ident == "Deserialize")
}

fn is_test(attrs: &[Attribute]) -> bool {
    attrs.iter().any(|a| a.path().is_ident("cfg") && list(a).iter().any(|it| it.path().is_ident("test")))
}

/// A variant's name as serde writes it.
pub(crate) fn renamed(ident: &str, casing: &str) -> String {
    match casing {
        "" => ident.into(),
        "lowercase" => ident.to_lowercase(),
        "kebab-case" => {
            let mut out = String::new();
            for c in ident.chars() {
                if c.is_uppercase() && !out.is_empty() {
                    out.push('-');
                }
                out.extend(c.to_lowercase());
            }
            out
        }
        other => panic!("`{ident}`: tests/generated_docs does not know #[serde(rename_all = \"{other}\")]"),
    }
}
