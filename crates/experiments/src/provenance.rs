//! Which program this is: kept beside every number, because whoever puts numbers together may sit elsewhere, with another
//! build.

use offing::run::Provenance;

/// Version and commit.
pub fn version() -> String {
    format!("{} ({})", env!("CARGO_PKG_VERSION"), commit())
}

/// This process, as the maker of a number.
pub(crate) fn this_process() -> Provenance {
    Provenance::here(&version())
}

/// The commit this program was built from, with a mark when sources differed from it; the version where it was built outside a
/// checkout, or not for release.
pub(crate) fn commit() -> String {
    match env!("OFFING_COMMIT") {
        "" => format!("v{}", env!("CARGO_PKG_VERSION")),
        commit => commit.into(),
    }
}
