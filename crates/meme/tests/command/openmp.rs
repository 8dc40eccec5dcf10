//! How the OpenMP threads of libtorch wait for each other.

use std::fs;

use crate::runs::{FOREVER, Runs, Started};

/// The OpenMP settings that the process was started with.
fn settings(process: &Started) -> Vec<String> {
    let environment = fs::read_to_string(format!("/proc/{}/environ", process.id())).unwrap();
    let settings = environment.split('\0').filter(|one| one.starts_with("OMP_WAIT") || one.starts_with("GOMP_SPIN"));
    settings.map(str::to_owned).collect()
}

#[test]
fn threads_spin_briefly_unless_configured_otherwise() {
    for (name, value, expected) in
        [("UNRELATED", "1", "GOMP_SPINCOUNT=20000"), ("OMP_WAIT_POLICY", "active", "OMP_WAIT_POLICY=active")]
    {
        let runs = Runs::new();
        let mut command = runs.train(&["--frames", FOREVER]);
        command.env_remove("GOMP_SPINCOUNT").env_remove("OMP_WAIT_POLICY").env(name, value);
        let mut process = runs.start(&mut command);
        process.wait_until("it trains", || runs.file("metrics.jsonl").exists());
        assert_eq!(settings(&process), [expected]);
    }
}
