//! Exchanges messages with one worker and explains its failures.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::time::Duration;

use serde_json::json;

use super::channel::{Asked, Channel, ChannelError};
use super::config::{Limits, WorkerConfig};
use super::hello::read_hello;
use super::layout::Layout;
use super::message::{Request, Status};
use super::process::Process;
use crate::environments::EnvSpec;
use crate::error::{EnvError, WorkerEnd};

/// Starts a worker that can map the given memory.
pub type Launch = Box<dyn FnMut(&File) -> io::Result<(Channel, Option<Process>)> + Send>;

/// Returns a function that starts the Python process of `config`.
pub fn python_launch(config: &WorkerConfig) -> Launch {
    let (python, package) = (config.python.clone(), config.package.clone());
    Box::new(move |memory| {
        let (process, socket) = Process::start(&python, &package, memory)?;
        Ok((Channel::new(socket), Some(process)))
    })
}

/// One worker.
pub struct Worker {
    name: String,
    limits: Limits,
    channel: Channel,
    process: Option<Process>,
    /// Steps without a reply yet, oldest first.
    pending: VecDeque<Asked>,
}

impl Worker {
    /// Starts a worker and lets it make its environments.
    pub fn open(launch: &mut Launch, config: &WorkerConfig, memory: &File) -> Result<(Self, EnvSpec), EnvError> {
        let name = config.environment.to_string();
        let (channel, process) = launch(memory).map_err(|cause| EnvError::Launch {
            name: name.clone(),
            what: config.python.display().to_string(),
            cause,
        })?;
        let mut worker = Self { name, limits: config.limits, channel, process, pending: VecDeque::new() };
        let hello = worker.ask((Request::Open, 0, 0), 0, config.to_json().to_string().as_bytes())?;
        match read_hello(&worker.name, &hello) {
            Ok(spec) => Ok((worker, spec)),
            Err(what) => Err(worker.invalid_answer(Request::Open, what)),
        }
    }

    /// Lets the worker map the shared memory.
    pub fn attach(&mut self, layout: &Layout) -> Result<(), EnvError> {
        self.ask((Request::Attach, 0, 0), 0, json!(layout).to_string().as_bytes()).map(drop)
    }

    /// Sends a request and waits for the content of its reply, after those of all pending steps.
    pub fn ask(&mut self, what: (Request, usize, usize), slot: usize, content: &[u8]) -> Result<Vec<u8>, EnvError> {
        while let Some(asked) = self.pending.pop_front() {
            self.receive(asked, self.limits.step)?;
        }
        let limit = self.limits.start_up;
        let asked = self.channel.send(what, slot, content, limit);
        let asked = asked.map_err(|error| self.explain(what.0, limit, error))?;
        self.receive(asked, limit)
    }

    /// Requests a step of a group without waiting.
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

    /// Returns the id of the worker's process.
    pub fn id(&self) -> Option<u32> {
        self.process.as_ref().map(Process::id)
    }

    /// Kills the worker and returns the error of an invalid answer.
    pub fn invalid_answer(&mut self, request: Request, what: String) -> EnvError {
        let stderr_tail = self.kill();
        EnvError::Protocol { name: self.name.clone(), request: request.name(), what, stderr_tail }
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
            Status::Beginning => Err(self.invalid_answer(asked.request, "a notice of beginning episodes".to_owned())),
        }
    }

    /// Ends a worker that can no longer be used, and says why.
    fn explain(&mut self, request: Request, limit: Duration, error: ChannelError) -> EnvError {
        let how = match error {
            ChannelError::Mismatch(what) => return self.invalid_answer(request, what),
            ChannelError::TimedOut => {
                let stderr_tail = self.kill();
                return EnvError::Timeout { name: self.name.clone(), request: request.name(), limit, stderr_tail };
            }
            ChannelError::Closed => match &mut self.process {
                Some(process) => process.end(),
                None => WorkerEnd::HungUp,
            },
            ChannelError::Io(error) => WorkerEnd::Connection(error.to_string()),
        };
        let stderr_tail = self.kill();
        EnvError::Lost { name: self.name.clone(), request: request.name(), how, stderr_tail }
    }

    /// Kills the worker and returns its last words.
    fn kill(&mut self) -> String {
        self.pending.clear();
        match &mut self.process {
            Some(process) => {
                process.kill();
                process.stderr_tail()
            }
            None => String::new(),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Only an idle worker gets time to close its environments.
        if self.pending.is_empty()
            && self.channel.send((Request::Close, 0, 0), 0, b"", self.limits.step).is_ok()
            && let Some(process) = &mut self.process
        {
            process.close();
        }
    }
}
