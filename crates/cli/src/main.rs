//! The binary `offing`.

fn main() -> std::process::ExitCode {
    std::process::ExitCode::from(offing_cli::run(std::env::args_os()).0)
}
