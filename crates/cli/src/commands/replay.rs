//! `offing replay`: a page that shows a policy, the data, and what the model imagines.

use anyhow::Result;
use offing_experiments::Runtime;
use offing_experiments::replay::ReplayRequest;

use crate::exit::ExitCode;
use crate::signals;

pub(crate) fn run(runtime: &Runtime, request: &ReplayRequest) -> Result<ExitCode> {
    signals::keep_nothing();
    out!("{}", request.run(runtime)?.display());
    Ok(ExitCode::SUCCESS)
}
