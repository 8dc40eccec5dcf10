//! Resources that this process, its workers and the GPU use.

use std::process::Command;
use std::time::Duration;

use procfs::ProcResult;
use procfs::process::{self, Process};
use serde::Serialize;

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
    pub fn now(device: bool) -> ProcResult<Self> {
        let device_bytes = device.then(device_bytes).flatten();
        Ok(Self { device_bytes, ..Self::of(std::process::id())? })
    }

    /// Measures a process and its children, without the GPU.
    fn of(own: u32) -> ProcResult<Self> {
        let mut usage = Self::default();
        for process in process::all_processes()? {
            // A process may end meanwhile.
            let Ok((process, stat)) = process.and_then(|process| process.stat().map(|stat| (process, stat))) else {
                continue;
            };
            let bytes = match [stat.pid, stat.ppid].map(i32::cast_unsigned) {
                [pid, _] if pid == own => &mut usage.own_bytes,
                [_, parent] if parent == own => &mut usage.worker_bytes,
                _ => continue,
            };
            *bytes += process.status().map_or(0, |status| from_kilobytes(status.vmrss).unwrap_or(0));
            usage.cpu += Duration::from_secs_f64((stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64);
        }
        Ok(usage)
    }
}

/// Returns the resident memory of this process, if the system reports it.
pub fn resident_bytes() -> Option<u64> {
    from_kilobytes(Process::myself().ok()?.status().ok()?.vmrss)
}

/// Returns the peak resident memory of this process, if the system reports it.
pub fn peak_resident_bytes() -> Option<u64> {
    from_kilobytes(Process::myself().ok()?.status().ok()?.vmhwm)
}

fn from_kilobytes(kilobytes: Option<u64>) -> Option<u64> {
    kilobytes.map(|kilobytes| kilobytes * 1024)
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
    fn peak_is_at_least_the_memory_in_use() {
        assert!(peak_resident_bytes() >= resident_bytes() && resident_bytes() > Some(1 << 20));
    }
}
