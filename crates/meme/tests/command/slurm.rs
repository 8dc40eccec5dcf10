//! `meme sweep --on slurm`, with stand-ins for SLURM's commands.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use crate::runs::{Runs, SMALL, ended, works};
use crate::sweep::states;

/// A directory with `sbatch`, `squeue` and `scontrol` that write down how they were called.
fn stand_ins(runs: &Runs) -> PathBuf {
    let bin = runs.directory().with_file_name("bin");
    fs::create_dir_all(&bin).unwrap();
    let calls = bin.join("calls").display().to_string();
    for (name, body) in [
        ("sbatch", "echo '42;main'"),
        ("squeue", "cat \"$(dirname \"$0\")/queue\" 2>/dev/null || true"),
        ("scontrol", "true"),
    ] {
        let path = bin.join(name);
        fs::write(&path, format!("#!/bin/sh\necho {name} \"$@\" >> {calls}\n{body}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    bin
}

/// A command that finds the stand-ins first.
fn with_stand_ins(command: Command, bin: &std::path::Path) -> Command {
    let mut command = command;
    command.env("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()));
    command
}

fn sweep(runs: &Runs, bin: &std::path::Path, arguments: &[&str]) -> Command {
    let mut command = runs.meme(&["sweep", "array", "--games", "catch", "--preset", "tiny", "--seeds", "1-3"]);
    for setting in SMALL {
        command.args(["--set", setting]);
    }
    command.args(["--on", "slurm"]).args(arguments);
    if !arguments.contains(&"--frames") {
        command.args(["--frames", "300"]);
    }
    with_stand_ins(command, bin)
}

/// Runs the body of the script as a job of the array would.
fn job(runs: &Runs, bin: &std::path::Path, index: usize) -> std::process::ExitStatus {
    let script = runs.directory().join("array/slurm.sh");
    let mut command = Command::new("bash");
    command.arg(script).env("SLURM_ARRAY_TASK_ID", index.to_string()).env("SLURM_ARRAY_JOB_ID", "42");
    with_stand_ins(command, bin).status().unwrap()
}

#[test]
fn array_trains_every_run_and_shows_the_queue() {
    let runs = Runs::new();
    let bin = stand_ins(&runs);
    let script = works(&mut sweep(&runs, &bin, &["--dry-run", "--slurm", "partition=gpu", "--jobs", "2"])).printed;
    for line in [
        "#SBATCH --array=0-2%2",
        "#SBATCH --requeue",
        "#SBATCH --signal=B:TERM@300",
        "#SBATCH --partition=gpu",
        "#SBATCH --job-name=meme-array",
    ] {
        assert!(script.lines().any(|found| found == line), "{line} is missing:\n{script}");
    }
    assert!(!runs.directory().join("array").exists(), "a dry run leaves nothing");
    let mut check = Command::new("bash");
    let file = bin.join("script.sh");
    fs::write(&file, &script).unwrap();
    assert!(check.arg("-n").arg(&file).status().unwrap().success());

    let said = works(&mut sweep(&runs, &bin, &["--slurm", "time=1:00:00"])).said;
    assert!(said.ends_with("submitted 3 runs as job 42; `meme sweep status array` shows how far they are\n"), "{said}");
    let submitted = fs::read_to_string(runs.directory().join("array/slurm.sh")).unwrap();
    assert!(submitted.contains("#SBATCH --time=1:00:00\n"), "{submitted}");
    fs::write(bin.join("queue"), "1 PENDING\n2 RUNNING gpu7\n").unwrap();
    let status = works(&mut with_stand_ins(runs.meme(&["sweep", "status", "array"]), &bin)).printed;
    assert!(status.contains("3 runs: 2 queued, 1 waiting\n") && status.contains("gpu7"), "{status}");
    let output = format!("#SBATCH --output=\"{}/array/logs/slurm-%A_%a.out\"\n", runs.directory().display());
    assert!(submitted.contains(&output), "{submitted}");
    // What is queued is not submitted again.
    works(&mut sweep(&runs, &bin, &[]));
    let again = fs::read_to_string(runs.directory().join("array/slurm.sh")).unwrap();
    assert!(again.contains("#SBATCH --array=0\n"), "{again}");
    fs::remove_file(bin.join("queue")).unwrap();

    for index in 0..3 {
        assert!(job(&runs, &bin, index).success());
    }
    assert!(states(&runs, "array").iter().all(|(state, ..)| state == "finished"));
    let calls = fs::read_to_string(bin.join("calls")).unwrap();
    assert!(!calls.contains("scontrol"), "{calls}");
    // Nothing is left to submit.
    assert_eq!(works(&mut sweep(&runs, &bin, &["--dry-run"])).printed, "");
}

#[test]
fn job_that_is_told_to_stop_saves_its_run_and_is_queued_again() {
    let runs = Runs::new();
    let bin = stand_ins(&runs);
    works(&mut sweep(&runs, &bin, &["--frames", "1000000000"]));
    let mut command = Command::new("bash");
    command.arg(runs.directory().join("array/slurm.sh"));
    command.env("SLURM_ARRAY_TASK_ID", "1").env("SLURM_ARRAY_JOB_ID", "42");
    let mut started = runs.start(&mut with_stand_ins(command, &bin));
    let metrics = runs.directory().join("array/catch-2/metrics.jsonl");
    started.wait_until("it plays", || fs::metadata(&metrics).is_ok_and(|file| file.len() > 0));
    started.send("TERM");
    assert!(started.end().status.success());
    assert!(fs::read_to_string(bin.join("calls")).unwrap().ends_with("scontrol requeue 42_1\n"));
    assert_eq!(states(&runs, "array")[1].0, "interrupted");
}

#[test]
fn refusals_of_sbatch_are_passed_on() {
    let runs = Runs::new();
    let bin = stand_ins(&runs);
    fs::write(bin.join("sbatch"), "#!/bin/sh\necho 'sbatch: error: invalid partition' >&2\nexit 1\n").unwrap();
    let refused = ended(&mut sweep(&runs, &bin, &[]));
    assert!(refused.said.contains("slurm.sh: sbatch: error: invalid partition\n"), "{}", refused.said);
    let runs = Runs::new();
    let mut command = sweep(&runs, &bin, &[]);
    command.env("PATH", "/nonexistent");
    let said = ended(&mut command).said;
    assert!(
        said.ends_with("error: there is no `sbatch` here; run this on a machine that submits SLURM jobs\n"),
        "{said}"
    );
    let mut command = sweep(&Runs::new(), &bin, &["--slurm=--partition"]);
    command.arg("--dry-run");
    let said = ended(&mut command).said;
    assert!(said.contains("expected an option of sbatch such as partition=gpu"), "{said}");
}
