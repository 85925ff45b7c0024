//! Examples below every `--help`. A test parses each of them.

/// A command, the words after `offing` that choose it, with examples: what to type after `offing`, and what for.
type Examples = (&'static str, &'static [(&'static str, &'static str)]);

const EXAMPLES: &[Examples] = &[
    (
        "",
        &[
            ("quickstart", "see it work: a dataset, a policy, its score, a report"),
            ("train my-logs.parquet", "learn a policy from a log"),
            ("settings landfall", "what can be set, and what it means"),
            (
                "completions bash > ~/.local/share/bash-completion/completions/offing",
                "complete commands with Tab",
            ),
        ],
    ),
    (
        "quickstart",
        &[
            ("quickstart", "about four minutes on two cores"),
            ("quickstart --rows 20000 --steps 2000 --dir /tmp/quickstart", "smaller, elsewhere"),
        ],
    ),
    (
        "data",
        &[
            ("data list", "what is here, and which names offing can generate"),
            ("data audit my-logs.parquet", "is it fit to learn from?"),
        ],
    ),
    (
        "data make",
        &[
            ("data make hopper-medium-replay --rows 100000", "by the built-in behaviour policies"),
            ("data make hopper-random --rows 5000 --seed 1 --out random.hdf5", "into a file of your own"),
            (
                "data make hopper-medium --policy-from hopper_medium-v2.hdf5",
                "a twin of a D4RL file, by its own policy",
            ),
        ],
    ),
    (
        "data fetch",
        &[
            ("data fetch hopper-medium-v2", "a file of D4RL"),
            (
                "data fetch mujoco/hopper/medium-v0 --mirror https://huggingface.co/=https://hub.example.org/",
                "Minari, by a mirror",
            ),
            ("data fetch neorl2:DMSD --out DMSD-train.npz", "NeoRL-2, into a file of your own"),
        ],
    ),
    (
        "data collect",
        &[
            ("data collect walker2d", "300,000 steps of online SAC; the same command resumes"),
            (
                "data make walker2d-medium --policies runs/collect/walker2d/s0/policies",
                "then a dataset by its snapshots",
            ),
        ],
    ),
    ("data list", &[("data list", "datasets on this machine, and names to generate")]),
    (
        "data info",
        &[
            ("data info my-logs.parquet", "rows used and dropped, columns, where next states came from"),
            (
                "data info trials.csv --columns columns.toml --all-columns",
                "a table with column names of its own",
            ),
        ],
    ),
    (
        "data audit",
        &[
            ("data audit my-logs.parquet", "exit code 1 if it would poison a model"),
            (
                "data audit monday.parquet --against friday.parquet --out comparison.html",
                "two logs side by side",
            ),
        ],
    ),
    (
        "data convert",
        &[
            (
                "data convert trials.csv my-logs.parquet --columns columns.toml",
                "the ending chooses the format",
            ),
            ("data convert my-logs.parquet clean.hdf5 --drop-bad", "without what the audit calls POISON"),
        ],
    ),
    (
        "train",
        &[
            ("train my-logs.parquet", "Landfall, the default, on a log"),
            ("train mopo+sumo hopper-medium-replay --profile quick", "MOPO with SUMO, minutes"),
            ("train hopper-medium-replay --dry-run", "the settings, and what it would cost"),
            (
                "train mopo+sumo my-logs.parquet --set pessimism.lambda=5 --seed 1",
                "one setting, another seed",
            ),
            ("train --resume runs/landfall/my-logs/s0-1a2b3c4d", "after Ctrl-C or a power cut"),
        ],
    ),
    (
        "eval",
        &[
            (
                "eval runs/landfall/hopper-medium-replay/s0-1a2b3c4d --episodes 100",
                "a run's policies beside its data",
            ),
            ("eval policy.safetensors --task hopper", "a policy file"),
            ("eval uniform --task walker2d --physics gymnasium-v5", "random actions, today's physics"),
        ],
    ),
    (
        "dynamics",
        &[
            ("dynamics my-logs.parquet", "hold-out and n-step errors of the learnt model"),
            (
                "dynamics hopper-medium-replay --rows 100000 --report page.html",
                "beside the simulator, with plots",
            ),
        ],
    ),
    (
        "export",
        &[("export runs/landfall/my-logs/s0-1a2b3c4d policy.onnx", "a run's last policy, for ONNX Runtime")],
    ),
    (
        "act",
        &[
            (
                "act runs/landfall/my-logs/s0-1a2b3c4d observations.csv -o actions.csv",
                "the mean action of every row",
            ),
            ("act policy.safetensors observations.npy actions.npy --stochastic --seed 1", "sampled actions"),
        ],
    ),
    (
        "calibrate",
        &[
            (
                "calibrate hopper-medium-replay --profile quick --seeds 2 --report page.html",
                "in the simulator",
            ),
            ("calibrate my-logs.parquet --profile quick", "without one: on held-out episodes"),
        ],
    ),
    (
        "reproduce",
        &[
            ("reproduce", "what there is to reproduce"),
            ("reproduce table2 --profile quick", "one table, smaller"),
            ("reproduce table1 --profile paper --executor slurm --jobs 40", "at full size on a cluster"),
        ],
    ),
    ("report", &[("report runs", "report.html: curves, last and best scores, times")]),
    (
        "replay",
        &[
            (
                "replay runs/landfall/hopper-medium-replay/s0-1a2b3c4d",
                "replay.html: the policy, and what the model imagined",
            ),
            ("replay policy.safetensors --task hopper -o policy.gif", "a moving picture of a policy file"),
            ("replay hopper-medium-replay -o data.html", "logged episodes"),
        ],
    ),
    (
        "rank",
        &[
            ("rank runs/landfall/my-logs runs/bc/my-logs", "runs on the same rows, from the data alone"),
            (
                "rank runs/landfall/hopper-medium-replay --online 20",
                "and how right that is, where there is a simulator",
            ),
        ],
    ),
    (
        "score",
        &[
            ("score my-logs.parquet new.parquet", "u of every new row, and the logged rows behind it"),
            (
                "score my-logs.parquet new.parquet --index my.knn --alpha 1",
                "an alarm (exit code 3), and an index to keep",
            ),
            ("score my.knn - --threshold 2.1", "rows on standard input against that index"),
        ],
    ),
    (
        "bench",
        &[
            ("bench env", "simulator steps a second"),
            ("bench sac --json sac.json", "a gradient step, also as JSON"),
        ],
    ),
    ("bench env", &[("bench env --tasks hopper,ant", "two of the tasks")]),
    ("bench data", &[("bench data --rows 20000", "generate, read and write")]),
    ("bench knn", &[("bench knn hopper-medium --policies policies", "exact search on imagined transitions")]),
    ("bench sac", &[("bench sac --hidden 256,256", "one gradient step of two-layer networks")]),
    ("bench dynamics", &[("bench dynamics --members 5 --rows 0", "one gradient step, no predictions")]),
    (
        "bench uncertainty",
        &[("bench uncertainty hopper-medium --estimators sumo pairwise", "what two scores cost")],
    ),
    (
        "bench scaling",
        &[("bench scaling --cores 64", "what a machine of 64 cores would do, and how to share it out")],
    ),
    (
        "bench train",
        &[("bench train --algorithms mopo+sumo --dataset hopper-medium-replay", "steps of a whole training")],
    ),
    (
        "doctor",
        &[
            ("doctor", "what offing finds, and how large its caches are"),
            ("doctor --fetch", "fetch the simulator now, for a machine without a network"),
            ("doctor --clean", "delete models and indexes"),
            ("doctor --clean models,datasets --older-than 30", "what was not written to for a month"),
        ],
    ),
    (
        "settings",
        &[
            ("settings", "the algorithms"),
            ("settings landfall", "its settings after its preset"),
            ("settings mopo+sumo penalty --profile quick", "those about a word"),
        ],
    ),
    (
        "completions",
        &[
            ("completions bash > ~/.local/share/bash-completion/completions/offing", "bash"),
            ("completions zsh > ~/.zfunc/_offing", "zsh, with ~/.zfunc in fpath"),
            ("completions fish > ~/.config/fish/completions/offing.fish", "fish"),
        ],
    ),
];

/// The command with examples below its help and that of every subcommand.
pub(crate) fn with_examples(command: clap::Command) -> clap::Command {
    EXAMPLES.iter().fold(command, |command, (path, examples)| {
        let words: Vec<&str> = path.split_whitespace().collect();
        below(command, &words, &text(examples))
    })
}

fn below(command: clap::Command, path: &[&str], text: &str) -> clap::Command {
    match path {
        [] => command.after_help(text.to_string()),
        [first, rest @ ..] => command.mut_subcommand(first, |inner| below(inner, rest, text)),
    }
}

/// What for above what to type: lines stay short, and commands can be copied whole.
fn text(examples: &[(&str, &str)]) -> String {
    let lines = examples.iter().map(|(command, what)| format!("  # {what}\n  offing {command}"));
    format!("Examples:\n{}", lines.collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(command: &clap::Command, above: &str, out: &mut Vec<String>) {
        out.push(above.to_string());
        for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
            paths(inner, format!("{above} {}", inner.get_name()).trim(), out);
        }
    }

    #[test]
    fn every_command_has_examples_and_every_example_is_a_command() {
        let mut all = Vec::new();
        paths(&crate::command(), "", &mut all);
        for path in &all {
            let found = EXAMPLES.iter().filter(|(known, _)| known == path).count();
            assert_eq!(found, 1, "`offing {path}` has {found} entries of examples");
        }
        assert_eq!(all.len(), EXAMPLES.len(), "examples of a command that is gone");
        for (path, examples) in EXAMPLES {
            for (example, _) in *examples {
                // A shell takes the redirection away.
                let line = example.split(" > ").next().unwrap_or_default();
                let words = std::iter::once("offing").chain(line.split_whitespace());
                let parsed = crate::command().try_get_matches_from(words);
                assert!(parsed.is_ok(), "help of `offing {path}`: {}", parsed.unwrap_err());
            }
        }
    }
}
