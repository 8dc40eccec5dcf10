//! How libtorch's threads wait for each other.

use std::fs;

use crate::runs::{FOR_EVER, Runs, Started};

/// What OpenMP was told when the process began.
fn told(process: &Started) -> Vec<String> {
    let environment = fs::read_to_string(format!("/proc/{}/environ", process.id())).unwrap();
    let told = environment.split('\0').filter(|one| one.starts_with("OMP_WAIT") || one.starts_with("GOMP_SPIN"));
    told.map(str::to_owned).collect()
}

#[test]
fn threads_wait_shortly_unless_they_are_told_how() {
    for (name, value, expected) in
        [("UNRELATED", "1", "GOMP_SPINCOUNT=20000"), ("OMP_WAIT_POLICY", "active", "OMP_WAIT_POLICY=active")]
    {
        let runs = Runs::new();
        let mut command = runs.train(&["--frames", FOR_EVER]);
        command.env_remove("GOMP_SPINCOUNT").env_remove("OMP_WAIT_POLICY").env(name, value);
        let mut process = runs.start(&mut command);
        process.wait_until("it trains", || runs.file("metrics.jsonl").exists());
        assert_eq!(told(&process), [expected]);
    }
}
