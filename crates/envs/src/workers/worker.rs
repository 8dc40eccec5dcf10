//! The conversation with one worker, and what is to be said when it goes wrong.

use std::collections::VecDeque;
use std::fs::File;
use std::time::Duration;

use super::channel::{Asked, Channel, ChannelError};
use super::config::{Limits, WorkerConfig};
use super::hello::read_hello;
use super::layout::Layout;
use super::message::{Request, Status};
use super::process::Process;
use crate::environments::EnvSpec;
use crate::error::EnvError;

/// Starts workers: Python processes, or something else that speaks their protocol.
pub trait Launcher: Send {
    /// Starts one that can map `memory`.
    fn launch(&mut self, memory: &File) -> std::io::Result<(Channel, Option<Process>)>;
}

/// Starts Python processes.
pub struct PythonLauncher {
    config: WorkerConfig,
}

impl PythonLauncher {
    /// Starts what `config` says.
    pub fn new(config: WorkerConfig) -> Self {
        Self { config }
    }
}

impl Launcher for PythonLauncher {
    fn launch(&mut self, memory: &File) -> std::io::Result<(Channel, Option<Process>)> {
        let (process, socket) = Process::start(&self.config.python, &self.config.package, memory)?;
        Ok((Channel::new(socket), Some(process)))
    }
}

/// One worker.
pub struct Worker {
    name: String,
    limits: Limits,
    channel: Channel,
    process: Option<Process>,
    /// Steps whose replies are still to come, oldest first.
    pending: VecDeque<Asked>,
}

impl Worker {
    /// Starts a worker and has it make its environments.
    pub fn open(
        launcher: &mut dyn Launcher,
        config: &WorkerConfig,
        memory: &File,
    ) -> Result<(Self, EnvSpec), EnvError> {
        let name = config.environment.to_string();
        let (channel, process) = launcher.launch(memory).map_err(|cause| EnvError::Launch {
            name: name.clone(),
            what: config.python.display().to_string(),
            cause,
        })?;
        let mut worker = Self { name, limits: config.limits, channel, process, pending: VecDeque::new() };
        let hello = worker.ask((Request::Open, 0, 0), 0, config.to_json().to_string().as_bytes())?;
        match read_hello(&worker.name, &hello) {
            Ok(spec) => Ok((worker, spec)),
            Err(what) => Err(worker.impossible(Request::Open, what)),
        }
    }

    /// Has the worker map the shared memory.
    pub fn attach(&mut self, layout: &Layout) -> Result<(), EnvError> {
        self.ask((Request::Attach, 0, 0), 0, layout.to_json().to_string().as_bytes()).map(drop)
    }

    /// Makes a request and waits for its reply's content. Steps that were asked for before are waited for first.
    pub fn ask(&mut self, what: (Request, usize, usize), slot: usize, content: &[u8]) -> Result<Vec<u8>, EnvError> {
        while let Some(asked) = self.pending.pop_front() {
            self.receive(asked, self.limits.step)?;
        }
        let limit = self.limits.start_up;
        let asked = self.channel.send(what, slot, content, limit);
        let asked = asked.map_err(|error| self.explain(what.0, limit, error))?;
        self.receive(asked, limit)
    }

    /// Asks for a step of a group and does not wait.
    pub fn ask_step(&mut self, group: usize, slot: usize) -> Result<(), EnvError> {
        let limit = self.limits.step;
        let asked = self.channel.send((Request::Step, group, 0), slot, b"", limit);
        let asked = asked.map_err(|error| self.explain(Request::Step, limit, error))?;
        self.pending.push_back(asked);
        Ok(())
    }

    /// Waits for the step of a group.
    pub fn await_step(&mut self, group: usize) -> Result<(), EnvError> {
        while self.pending.iter().any(|asked| asked.group == group) {
            if let Some(asked) = self.pending.pop_front() {
                self.receive(asked, self.limits.step)?;
            }
        }
        Ok(())
    }

    /// The id of the worker's process.
    pub fn id(&self) -> Option<u32> {
        self.process.as_ref().map(Process::id)
    }

    /// The error that the worker's answer makes no sense. The worker is killed.
    pub fn impossible(&mut self, request: Request, what: String) -> EnvError {
        let last_words = self.kill();
        EnvError::Protocol { name: self.name.clone(), request: request.name(), what, last_words }
    }

    fn receive(&mut self, asked: Asked, limit: Duration) -> Result<Vec<u8>, EnvError> {
        let (mut request, mut limit) = (asked.request, limit);
        let mut reply = self.channel.receive(asked, limit).map_err(|error| self.explain(request, limit, error))?;
        if reply.status == Status::Beginning && request == Request::Step {
            (request, limit) = (Request::Reset, self.limits.start_up);
            reply = self.channel.receive(asked, limit).map_err(|error| self.explain(request, limit, error))?;
        }
        let text = || String::from_utf8_lossy(&reply.content).into_owned();
        let (name, request) = (self.name.clone(), request.name());
        match reply.status {
            Status::Done => Ok(reply.content),
            Status::Refused if request == Request::Open.name() => {
                Err(EnvError::Unsupported { name, request: "be used", reason: text() })
            }
            Status::Refused => Err(EnvError::Unsupported { name, request, reason: text() }),
            Status::Failed => Err(EnvError::Raised { name, request, text: text() }),
            Status::Foreign => Err(EnvError::Foreign { name, reason: text() }),
            Status::Beginning => {
                Err(self.impossible(asked.request, "it said that episodes are being begun".to_owned()))
            }
        }
    }

    /// The worker cannot be used any more: ends it and says why.
    fn explain(&mut self, request: Request, limit: Duration, error: ChannelError) -> EnvError {
        let how = match error {
            ChannelError::Nonsense(what) => return self.impossible(request, what),
            ChannelError::TimedOut => {
                let last_words = self.kill();
                return EnvError::Timeout { name: self.name.clone(), request: request.name(), limit, last_words };
            }
            ChannelError::Closed => match &mut self.process {
                Some(process) => process.end(),
                None => "it closed its connection".to_owned(),
            },
            ChannelError::Io(error) => error.to_string(),
        };
        let last_words = self.kill();
        EnvError::Lost { name: self.name.clone(), request: request.name(), how, last_words }
    }

    /// Kills the worker and returns its last words.
    fn kill(&mut self) -> String {
        self.pending.clear();
        match &mut self.process {
            Some(process) => {
                process.kill();
                process.last_words()
            }
            None => String::new(),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // An idle worker is given the time to close its environments; one in the middle of something is not.
        if self.pending.is_empty()
            && self.channel.send((Request::Close, 0, 0), 0, b"", self.limits.step).is_ok()
            && let Some(process) = &mut self.process
        {
            process.close();
        }
    }
}
