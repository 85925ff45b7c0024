//! From finished cells to what a reader gets: one document, and tables as CSV.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use offing::data::catalogue::{GeneratedName, Located, Origin};
use offing::run::{Provenance, cores, cpu_name};
use offing_mujoco::MUJOCO;

use super::Grid;
use super::cells::{Cell, CellResult, CellState, cells_csv, curves_csv};
use super::experiment::GridSpec;
use crate::files::write_text;
use crate::provenance::version;
use crate::{Document, Element, Runtime};

/// What one kind of grid makes of its cells.
pub(super) struct Collected {
    /// Files beside the document, by what follows the name.
    pub(super) files: Vec<(&'static str, String)>,
    /// What the terminal shows, too.
    pub(super) results: Vec<Element>,
    /// What only pages show.
    pub(super) details: Vec<Element>,
    /// What a reader must know about the numbers, a sentence or two each.
    pub(super) caveats: Vec<String>,
}

/// Tables and figures of a grid.
pub struct GridReport {
    /// What a reader gets.
    pub document: Document,
    /// Whether all cells are finished and their numbers belong together.
    pub complete: bool,
    /// Files beside the document, by what follows the name.
    files: Vec<(&'static str, String)>,
    name: String,
    out: PathBuf,
}

impl GridReport {
    /// Writes all files and returns the page's path.
    ///
    /// # Errors
    /// A directory that cannot be written.
    pub fn write(&self) -> Result<PathBuf> {
        std::fs::create_dir_all(&self.out)
            .map_err(|e| anyhow!("{}: cannot create: {e}; give another --out", self.out.display()))?;
        let path = |ending: &str| self.out.join(format!("{}.{ending}", self.name));
        self.files.iter().try_for_each(|(ending, content)| write_text(&path(ending), content))?;
        write_text(&path("md"), &self.document.markdown())?;
        write_text(&path("tex"), &self.document.latex())?;
        self.document.write_html(&path("html"))?;
        Ok(path("html"))
    }
}

impl Grid {
    /// Tables and figures of what is finished.
    ///
    /// # Errors
    /// A published table that cannot be read.
    pub fn report(&self, runtime: &Runtime, cells: &[Cell]) -> Result<GridReport> {
        let cells = &self.store.all(cells);
        let Collected { mut files, mut results, details, mut caveats } = self.kind().collect(self, cells)?;
        // A figure of its own data has none of the paper's.
        if !matches!(self.experiment.grid, GridSpec::Fig1(_)) {
            caveats.push(origins(runtime, &self.datasets));
        }
        caveats.extend(self.experiment.notes.iter().cloned());
        caveats.extend(made_by(cells, self.runs_alone()));
        caveats.push(self.machine());
        results.extend(unfinished(cells));
        let key = |cell: &Cell| self.kind().data_key(self, cell);
        let mixed = mixed_data(&self.datasets, cells, key, &self.request.out());
        results.extend(mixed.iter().map(Element::text));
        files.push(("cells.csv", cells_csv(cells, self.kind().interval())));
        if cells.iter().any(|(_, s)| s.result().is_some_and(|f| !f.curve.is_empty())) {
            files.push(("curves.csv", curves_csv(cells)));
        }
        let intro = [Element::text(&self.experiment.about), Element::Code(self.request.command(self.seeds))];
        let intro = intro.into_iter().chain(caveats.into_iter().map(Element::Text)).collect();
        Ok(GridReport {
            document: Document {
                title: self.experiment.title.clone(),
                intro,
                results,
                details,
                refresh: None,
            },
            complete: mixed.is_empty() && cells.iter().all(|(_, state)| state.result().is_some()),
            files,
            name: self.experiment.name.clone(),
            out: self.request.tables_dir(&self.profile),
        })
    }

    /// What made this page, and where.
    fn machine(&self) -> String {
        let (version, cpu, cores, physics) = (version(), cpu_name(), cores(), self.request.physics);
        let threads = if self.runs_alone() { "" } else { " Numbers do not depend on the number of threads." };
        format!(
            "This page was made by offing {version} on {cpu} with {cores} cores; physics {physics}, MuJoCo {MUJOCO}.{threads}"
        )
    }
}

/// Which cells have no numbers, and why.
fn unfinished(cells: &[(Cell, CellState)]) -> Vec<Element> {
    let mut elements = Vec::new();
    let of = cells.len();
    let failed = cells.iter().filter_map(|(cell, state)| match state {
        CellState::Failed(why) => Some(vec![cell.label(), why.clone()]),
        _ => None,
    });
    let failed: Vec<Vec<String>> = failed.collect();
    if !failed.is_empty() {
        let heading = format!("Failed: {} of {of} cells", failed.len());
        elements.extend(Element::section(heading, Element::table(&["cell", "why"], failed)));
    }
    let open = cells.iter().filter(|(_, s)| matches!(s, CellState::Missing | CellState::Begun(_))).count();
    if open > 0 {
        let words = format!("Not finished yet: {open} of {of} cells; the tables are of the others.");
        elements.push(Element::Text(words));
    }
    elements
}

fn origins(runtime: &Runtime, datasets: &[String]) -> String {
    let origin = |name: &String| match runtime.catalogue.find(name) {
        Ok(Located::File { origin, .. }) => origin.to_string(),
        Ok(Located::ToGenerate(_)) => Origin::Generated.to_string(),
        // There several times: a name that offing makes.
        Err(_) if GeneratedName::parse(name).is_ok() => Origin::Generated.to_string(),
        Err(_) => "not on this machine".into(),
    };
    let origins: Vec<String> = datasets.iter().map(|d| format!("{d} ({})", origin(d))).collect();
    format!(
        "Datasets: {}. Made sets come from offing's own simulator, by its built-in policies unless they were made with \
         --policies; the paper's come from D4RL.",
        origins.join(", ")
    )
}

/// What ran the cells, where they say so. Times depend on the machine and the threads, other numbers on the program alone.
fn made_by(cells: &[(Cell, CellState)], times: bool) -> Option<String> {
    let found: Vec<&CellResult> = cells.iter().filter_map(|(_, state)| state.result()).collect();
    let words = |by: &Provenance| {
        let program = format!("{} on {}", by.offing, by.cpu);
        let threads = if by.threads == 1 { "one thread".into() } else { format!("{} threads", by.threads) };
        if times { format!("{program} with {} cores, {threads} used", by.cores) } else { program }
    };
    let mut all: Vec<String> = found.iter().flat_map(|f| &f.provenance).map(words).collect();
    all.sort_unstable();
    all.dedup();
    let silent = match found.iter().filter(|f| f.provenance.is_empty()).count() {
        0 => String::new(),
        silent => format!(" {silent} of {} cells do not tell.", found.len()),
    };
    let how = if all.len() == 1 { "Cells were run by" } else { "Cells were not all run alike:" };
    (!all.is_empty()).then(|| format!("{how} offing {}.{silent}", all.join("; offing ")))
}

/// Datasets whose cells are not of the same transitions, as when a set was made anew on the way: no mean should be over them.
/// `kind` separates cells that may differ.
fn mixed_data(
    datasets: &[String],
    cells: &[(Cell, CellState)],
    kind: impl Fn(&Cell) -> String,
    out: &Path,
) -> Vec<String> {
    let mixed = |dataset: &&String| {
        let mut seen: BTreeMap<String, &str> = BTreeMap::new();
        let of = cells.iter().filter(|(cell, _)| cell.dataset == **dataset);
        let known = of.filter_map(|(cell, state)| Some((cell, state.result()?.data.as_str())));
        let mut known = known.filter(|(_, data)| !data.is_empty());
        known.any(|(cell, data)| *seen.entry(kind(cell)).or_insert(data) != data)
    };
    let words = |dataset: &String| {
        format!(
            "{dataset}: its cells learnt from different transitions, so its numbers do not belong together. Remove the cells of \
             the data you do not mean (told apart by `data` in {}) and run the same command again.",
            out.join("cells/*.json").display()
        )
    };
    datasets.iter().filter(mixed).map(words).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(dataset: &str, seed: u64, data: &str, threads: usize) -> (Cell, CellState) {
        let cell = Cell { id: format!("{dataset}{seed}"), column: None, dataset: dataset.into(), seed };
        let by = Provenance { offing: "0.1.0 (abc)".into(), cpu: "a CPU".into(), cores: 8, threads };
        let by = if threads > 0 { vec![by] } else { Vec::new() };
        (cell, CellState::Done(CellResult { data: data.into(), provenance: by, ..CellResult::default() }))
    }

    #[test]
    fn cells_of_different_transitions_are_told() {
        let datasets = ["a".to_string(), "b".into()];
        // An older cell does not say what it learnt from.
        let done = [cell("a", 0, "x", 1), cell("a", 1, "x", 1), cell("a", 2, "", 1), cell("b", 0, "y", 1)];
        let alike = |_: &Cell| String::new();
        assert!(mixed_data(&datasets, &done, alike, Path::new("out")).is_empty());
        let done = [cell("a", 0, "x", 1), cell("b", 0, "y", 1), cell("b", 1, "z", 1)];
        let by_seed = |cell: &Cell| cell.seed.to_string();
        assert!(mixed_data(&datasets, &done, by_seed, Path::new("out")).is_empty(), "meant to differ");
        let told = mixed_data(&datasets, &done, alike, Path::new("out"));
        assert!(told.len() == 1 && told[0].starts_with("b: its cells learnt from different"), "{told:?}");
    }

    #[test]
    fn who_ran_the_cells_is_told_with_threads_only_where_they_matter() {
        let done = [cell("a", 0, "", 1), cell("a", 1, "", 4), cell("a", 2, "", 0)];
        let scores = made_by(&done, false).unwrap();
        assert_eq!(scores, "Cells were run by offing 0.1.0 (abc) on a CPU. 1 of 3 cells do not tell.");
        let times = made_by(&done, true).unwrap();
        let alone =
            "Cells were not all run alike: offing 0.1.0 (abc) on a CPU with 8 cores, 4 threads used; offing";
        assert!(times.starts_with(alone) && times.contains("one thread used"), "{times}");
        assert_eq!(made_by(&[cell("a", 0, "", 0)], false), None);
    }
}
