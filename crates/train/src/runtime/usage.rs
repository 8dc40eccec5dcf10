//! Resources that this process, its workers and the GPU use.

use std::process::Command;
use std::time::Duration;
use std::{fs, io};

use serde::Serialize;

/// Clock ticks per second in `/proc`, the same on every x86-64 Linux.
const TICKS: f64 = 100.0;

/// Resources in use at one moment.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct ResourceUsage {
    /// Resident memory of this process.
    pub own_bytes: u64,
    /// Resident memory of its worker processes.
    pub worker_bytes: u64,
    /// Memory in use on the first GPU, by all processes; `None` without a GPU.
    pub device_bytes: Option<u64>,
    /// CPU time so far, of this process and its workers.
    #[serde(skip)]
    pub cpu: Duration,
}

impl ResourceUsage {
    /// Measures now; the GPU only on request, since that takes a while.
    pub fn now(device: bool) -> io::Result<Self> {
        let device_bytes = device.then(device_bytes).flatten();
        Ok(Self { device_bytes, ..Self::of(std::process::id())? })
    }

    /// Measures a process and its children, without the GPU.
    fn of(own: u32) -> io::Result<Self> {
        let mut usage = Self::default();
        for entry in fs::read_dir("/proc")? {
            let name = entry?.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
            // A process may end meanwhile.
            let Some((parent, cpu)) = fs::read_to_string(format!("/proc/{pid}/stat")).ok().and_then(|t| stat(&t))
            else {
                continue;
            };
            if pid != own && parent != own {
                continue;
            }
            let bytes = memory(&pid.to_string(), "VmRSS").unwrap_or(0);
            *(if pid == own { &mut usage.own_bytes } else { &mut usage.worker_bytes }) += bytes;
            usage.cpu += cpu;
        }
        Ok(usage)
    }
}

/// Parses parent and CPU time in `/proc/PID/stat`, where the name may contain spaces and brackets.
fn stat(line: &str) -> Option<(u32, Duration)> {
    let fields: Vec<&str> = line.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    Some((fields.get(1)?.parse().ok()?, Duration::from_secs_f64(ticks as f64 / TICKS)))
}

/// Returns the resident memory of this process, if the system reports it.
pub fn resident_bytes() -> Option<u64> {
    memory("self", "VmRSS")
}

/// Returns the peak resident memory of this process, if the system reports it.
pub fn peak_resident_bytes() -> Option<u64> {
    memory("self", "VmHWM")
}

fn memory(process: &str, field: &str) -> Option<u64> {
    memory_in(&fs::read_to_string(format!("/proc/{process}/status")).ok()?, field)
}

/// Parses the bytes in a line of `/proc/PID/status`.
fn memory_in(status: &str, field: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? * 1024)
}

/// Returns the driver's count, which includes libtorch's and cuDNN's memory, graphs, and the context.
fn device_bytes() -> Option<u64> {
    let query = ["--id=0", "--query-gpu=memory.used", "--format=csv,noheader,nounits"];
    let output = Command::new("nvidia-smi").args(query).output().ok()?;
    let mebibytes: u64 = String::from_utf8(output.stdout).ok()?.trim().parse().ok()?;
    Some(mebibytes << 20)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::process::Stdio;

    use super::*;

    #[test]
    fn counts_a_process_and_its_child() {
        let own = ResourceUsage::now(false).unwrap();
        assert!(own.own_bytes > 1 << 20 && own.device_bytes.is_none());
        // A process with one child, until its standard input is closed.
        let script = "read line; sleep 100 & echo; read line; kill $!";
        let (input, output) = (Stdio::piped(), Stdio::piped());
        let mut parent = Command::new("sh").args(["-c", script]).stdin(input).stdout(output).spawn().unwrap();
        let (mut input, mut output) = (parent.stdin.take().unwrap(), parent.stdout.take().unwrap());
        let alone = ResourceUsage::of(parent.id()).unwrap();
        assert_eq!(alone.worker_bytes, 0);
        input.write_all(b"\n").unwrap();
        output.read_exact(&mut [0]).unwrap();
        let with_child = ResourceUsage::of(parent.id()).unwrap();
        drop(input);
        parent.wait().unwrap();
        assert!(with_child.own_bytes > 0 && with_child.worker_bytes > 0, "{with_child:?}");
    }

    #[test]
    fn parses_a_name_with_brackets() {
        let line =
            "42 (a (b) c) S 7 42 42 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 1 0 100 1000 200 18446744073709551615";
        assert_eq!(stat(line), Some((7, Duration::from_secs(3))));
        assert_eq!(stat("42 nonsense"), None);
        let status = "Name:\tx\nVmHWM:\t  4096 kB\nVmRSS:\t  2048 kB\n";
        assert_eq!(
            ["VmRSS", "VmHWM", "Vm"].map(|field| memory_in(status, field)),
            [Some(2 << 20), Some(4 << 20), None]
        );
        assert!(peak_resident_bytes() >= resident_bytes() && resident_bytes() > Some(1 << 20));
    }
}
