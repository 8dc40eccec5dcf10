//! Inference behind a channel: a thread that answers the requests of many actors in common batches.
//!
//! Observations are sent to the device as they arrive, while other actors are still waited for.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::config::{EvaluationRefresh, InferenceConfig};
use crate::error::{Result, TrainError};
use crate::roles::inference::{Decide, Inference, RecurrentSnapshot};
use crate::roles::messages::{ActRequests, Decision, Role};
use crate::roles::published_parameters::PublishedParameters;
use crate::roles::thread_role::ThreadRole;
use crate::roles::timesheet::{Activity, Stopwatch};

enum ServerRequest {
    /// A client may send requests from now on.
    Arrive(Role),
    /// A client sends no requests from now on.
    Leave(Role),
    Decide(PendingRequest),
    Refresh(Box<PublishedParameters>),
    RefreshEvaluators(Box<PublishedParameters>),
    Snapshot(Sender<Result<RecurrentSnapshot>>),
}

/// A client's requests, and where to send the decisions. The requests go back too, to reuse their memory.
struct PendingRequest {
    role: Role,
    requests: ActRequests,
    reply: Sender<Result<(Vec<Decision>, ActRequests)>>,
}

/// A running inference server; its thread ends when the server and all clients are dropped.
pub struct InferenceServer {
    inbox: Sender<ServerRequest>,
    thread: JoinHandle<()>,
}

/// An actor's connection to the inference server.
///
/// It sends one request at a time, so a batch is complete once every client has sent one that is not
/// [`away`](Self::away). Evaluators are waited for only if there are no actors: they often have one group of
/// environments only, and actors would stand still while those step.
pub struct InferenceClient {
    role: Role,
    inbox: Sender<ServerRequest>,
}

/// While it lives, the inference server does not wait for its client.
pub struct AwayGuard<'a> {
    client: &'a InferenceClient,
}

/// Makes clients of a server whose owner is elsewhere; the server's thread ends only after it is dropped.
#[derive(Clone)]
pub(crate) struct InferenceConnector {
    inbox: Sender<ServerRequest>,
}

impl InferenceConnector {
    /// Returns a connection for one actor.
    pub(crate) fn client(&self, role: Role) -> InferenceClient {
        let client = InferenceClient { role, inbox: self.inbox.clone() };
        client.notify(ServerRequest::Arrive(role));
        client
    }
}

impl InferenceServer {
    /// Starts the thread, which records its time with `stopwatch`.
    ///
    /// With `EvaluationRefresh::During`, evaluators get every refresh that actors get.
    pub fn start(
        inference: Inference,
        config: &InferenceConfig,
        evaluators: EvaluationRefresh,
        stopwatch: Stopwatch,
    ) -> Result<Self> {
        // Fixes the caller's number of libtorch threads: until it is read, it follows what another thread sets.
        tch::get_num_threads();
        let (sender, inbox) = channel();
        let server = ServerThread {
            inference,
            inbox,
            max_batch: config.max_batch,
            max_wait: Duration::from_micros(config.max_wait_microseconds),
            present: [0; 2],
            evaluators,
            published: None,
            failure: None,
            stopwatch,
        };
        Ok(Self { inbox: sender, thread: ThreadRole::Inference.spawn(move || server.serve())? })
    }

    /// Returns a connection for one actor.
    pub fn client(&self, role: Role) -> InferenceClient {
        self.connector().client(role)
    }

    /// Returns what makes connections later.
    pub(crate) fn connector(&self) -> InferenceConnector {
        InferenceConnector { inbox: self.inbox.clone() }
    }

    /// Hands over newer parameters.
    ///
    /// They are used from the next batch on, or once the learner's device has finished computing them.
    pub fn refresh(&self, published: PublishedParameters) -> Result<()> {
        self.inbox.send(ServerRequest::Refresh(Box::new(published))).map_err(|_| ended())
    }

    /// Hands over the parameters that evaluators play with from their next request on.
    pub fn refresh_evaluators(&self, published: PublishedParameters) -> Result<()> {
        self.inbox.send(ServerRequest::RefreshEvaluators(Box::new(published))).map_err(|_| ended())
    }

    /// Returns the recurrent state of every actor environment.
    pub fn snapshot(&self) -> Result<RecurrentSnapshot> {
        let (reply, states) = channel();
        self.inbox.send(ServerRequest::Snapshot(reply)).map_err(|_| ended())?;
        states.recv().map_err(|_| ended())?
    }

    /// Waits for the thread to end, which it does once all clients are dropped.
    pub fn finish(self) -> Result<()> {
        drop(self.inbox);
        self.thread.join().map_err(|_| TrainError::Panicked { role: ThreadRole::Inference })
    }
}

fn ended() -> TrainError {
    TrainError::ThreadEnded { role: ThreadRole::Inference }
}

impl InferenceClient {
    /// Keeps batches from waiting for this client, for waits longer than the gathering of a batch.
    pub fn away(&self) -> AwayGuard<'_> {
        self.notify(ServerRequest::Leave(self.role));
        AwayGuard { client: self }
    }

    /// Sends a request without reply. If the server is gone, the next `decide` reports that.
    fn notify(&self, request: ServerRequest) {
        let _ = self.inbox.send(request);
    }
}

impl Drop for InferenceClient {
    fn drop(&mut self) {
        self.notify(ServerRequest::Leave(self.role));
    }
}

impl Drop for AwayGuard<'_> {
    fn drop(&mut self) {
        self.client.notify(ServerRequest::Arrive(self.client.role));
    }
}

impl Decide for InferenceClient {
    fn decide(&mut self, requests: &mut ActRequests) -> Result<Vec<Decision>> {
        // The server holds the only sender: if its thread dies, the wait for the reply ends.
        let (reply, replies) = channel();
        let pending = PendingRequest { role: self.role, requests: std::mem::take(requests), reply };
        self.inbox.send(ServerRequest::Decide(pending)).map_err(|_| ended())?;
        let decisions;
        (decisions, *requests) = replies.recv().map_err(|_| ended())??;
        Ok(decisions)
    }
}

struct ServerThread {
    inference: Inference,
    inbox: Receiver<ServerRequest>,
    max_batch: usize,
    max_wait: Duration,
    /// Clients that may send requests: actors and evaluators.
    present: [usize; 2],
    evaluators: EvaluationRefresh,
    /// The newest parameters, until they are taken over.
    published: Option<Box<PublishedParameters>>,
    /// Why newer parameters could not be taken over; reported to the next client, since a refresh has no reply.
    failure: Option<String>,
    stopwatch: Stopwatch,
}

impl ServerThread {
    fn serve(mut self) {
        // The steps are small, and more libtorch threads would spin next to the learner's while they wait.
        tch::set_num_threads(1);
        let mut pending: Vec<PendingRequest> = Vec::new();
        while let Ok(request) = self.inbox.recv() {
            self.stopwatch.lap(Activity::Waiting);
            self.take(request, &mut pending);
            self.stopwatch.lap(Activity::Working);
            // The first request of a batch waits for others, until the batch is complete or `max_wait` has passed.
            let until = Instant::now() + self.max_wait;
            while !pending.is_empty() && !self.is_complete(&pending) {
                match self.inbox.recv_timeout(until.saturating_duration_since(Instant::now())) {
                    Ok(request) => self.take(request, &mut pending),
                    Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
                }
            }
            self.stopwatch.lap(Activity::Gathering);
            if !pending.is_empty() {
                self.reply(&mut pending);
            }
            self.stopwatch.lap(Activity::Working);
        }
    }

    fn take(&mut self, request: ServerRequest, pending: &mut Vec<PendingRequest>) {
        // A client that is gone needs no reply, here and below.
        match request {
            ServerRequest::Arrive(role) => self.present[role as usize] += 1,
            ServerRequest::Leave(role) => self.present[role as usize] -= 1,
            ServerRequest::Decide(request) => match self.inference.send(&request.requests) {
                Ok(()) => pending.push(request),
                Err(error) => drop(request.reply.send(Err(error))),
            },
            ServerRequest::Refresh(published) => {
                // The parameters before may be finished by now, and these may not be for a while.
                self.refresh();
                self.published = Some(published);
            }
            ServerRequest::RefreshEvaluators(published) => {
                let refreshed = self.inference.refresh_evaluators(&published);
                self.failure = refreshed.err().map(|error| error.to_string()).or(self.failure.take());
            }
            ServerRequest::Snapshot(reply) => drop(reply.send(self.inference.snapshot())),
        }
    }

    /// Whether the batch is full, or every client that is waited for has sent its request.
    fn is_complete(&self, pending: &[PendingRequest]) -> bool {
        let awaited = if self.present[Role::Actor as usize] > 0 { Role::Actor } else { Role::Evaluator };
        let arrived = pending.iter().filter(|request| request.role == awaited).count();
        let rows: usize = pending.iter().map(|request| request.requests.requests.len()).sum();
        rows >= self.max_batch || arrived >= self.present[awaited as usize]
    }

    /// Takes over newer parameters, unless the learner's device is still at work on them.
    fn refresh(&mut self) {
        let Some(published) = self.published.take() else { return };
        let refreshed = match published.is_complete() {
            Ok(true) => self.inference.refresh(&published).and_then(|()| match self.evaluators {
                EvaluationRefresh::Between => Ok(()),
                EvaluationRefresh::During => self.inference.refresh_evaluators(&published),
            }),
            Ok(false) => {
                self.published = Some(published);
                return;
            }
            Err(error) => Err(error),
        };
        self.failure = refreshed.err().map(|error| error.to_string());
    }

    fn reply(&mut self, pending: &mut Vec<PendingRequest>) {
        self.refresh();
        let decided = match &self.failure {
            Some(failure) => Err(TrainError::Inference(failure.clone())),
            None => {
                let together: Vec<&ActRequests> = pending.iter().map(|request| &request.requests).collect();
                self.inference.decide_together(&together)
            }
        };
        match decided {
            Ok(decisions) => {
                let mut decisions = decisions.into_iter();
                for PendingRequest { requests, reply, .. } in pending.drain(..) {
                    let decisions = decisions.by_ref().take(requests.requests.len()).collect();
                    drop(reply.send(Ok((decisions, requests))));
                }
            }
            Err(error) => {
                // The first client gets the error itself, the others its text.
                let text = error.to_string();
                let mut first = Some(error);
                for request in pending.drain(..) {
                    let error = first.take().unwrap_or_else(|| TrainError::Inference(text.clone()));
                    drop(request.reply.send(Err(error)));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use agent::acting::ObservationRows;
    use agent::{Learner, ObservationKind, ObservationSpec};
    use tch::Device;

    use super::*;
    use crate::config::{Config, Sources};
    use crate::roles::inference::RoleSizes;
    use crate::roles::messages::{ActRequest, PreviousStep};

    fn config(settings: &[String]) -> Config {
        Sources { preset: Some("tiny".to_owned()), file: None, set: settings.to_vec() }.load().unwrap().config
    }

    fn published(config: &Config) -> PublishedParameters {
        PublishedParameters::of(&Learner::new(&config.agent, &observation(), 2, 1, Device::Cpu).unwrap()).unwrap()
    }

    fn observation() -> ObservationSpec {
        ObservationSpec::array(vec![4], ObservationKind::F32)
    }

    fn start(config: &Config, published: &PublishedParameters, slots: usize) -> InferenceServer {
        let roles = RoleSizes { actors: slots, evaluators: 0, remote: 0 };
        let inference = Inference::new(config, &observation(), 2, roles, Device::Cpu, published).unwrap();
        let stopwatch = Stopwatch::new(&Arc::default(), ThreadRole::Inference);
        InferenceServer::start(inference, &config.inference, EvaluationRefresh::Between, stopwatch).unwrap()
    }

    /// Sends the request of an environment's first observation; returns the number of decisions.
    fn ask(client: &mut InferenceClient, config: &Config, slot: usize) -> Result<usize> {
        ask_about(client, config, slot, 0, None)
    }

    fn ask_about(
        client: &mut InferenceClient,
        config: &Config,
        slot: usize,
        row: usize,
        last_observation: Option<Vec<u8>>,
    ) -> Result<usize> {
        let previous = PreviousStep::zeros(config.agent.network.intrinsic.embedding);
        let request = ActRequest::new(slot, Role::Actor, 0, previous, None);
        let request = ActRequest { first: true, row, last_observation, ..request };
        let observations = ObservationRows::on_host(1, self::observation().bytes());
        client
            .decide(&mut ActRequests { requests: vec![request], ..ActRequests::new(observations) })
            .map(|all| all.len())
    }

    /// A refresh has no reply, and stale decisions must not be served forever.
    #[test]
    fn a_failed_refresh_is_reported_to_the_next_client() {
        let (config, other) = (config(&[]), config(&["agent.network.core=24".to_owned()]));
        let good = published(&config);
        let server = start(&config, &good, 1);
        let mut client = server.client(Role::Actor);
        let mut ask = || ask(&mut client, &config, 0);
        assert_eq!(ask().unwrap(), 1);
        server.refresh(published(&other)).unwrap();
        let error = ask().unwrap_err();
        assert!(matches!(error, TrainError::Inference(_)), "{error}");
        server.refresh(good).unwrap();
        assert_eq!(ask().unwrap(), 1);
        drop(client);
        server.finish().unwrap();
    }

    #[test]
    fn evaluators_keep_their_parameters_unless_they_follow_the_learner() {
        let config = config(&[]);
        let learner = |seed| Learner::new(&config.agent, &observation(), 2, seed, Device::Cpu).unwrap();
        for (evaluators, follows) in [(EvaluationRefresh::Between, false), (EvaluationRefresh::During, true)] {
            let first = published(&config);
            let roles = RoleSizes { actors: 1, evaluators: 1, remote: 0 };
            let inference = Inference::new(&config, &observation(), 2, roles, Device::Cpu, &first).unwrap();
            let stopwatch = Stopwatch::new(&Arc::default(), ThreadRole::Inference);
            let server = InferenceServer::start(inference, &config.inference, evaluators, stopwatch).unwrap();
            let mut client = server.client(Role::Evaluator);
            let mut values = || {
                let previous = PreviousStep::zeros(config.agent.network.intrinsic.embedding);
                let request = ActRequest { first: true, ..ActRequest::new(1, Role::Evaluator, 0, previous, None) };
                let observations = ObservationRows::on_host(1, observation().bytes());
                client.decide(&mut ActRequests { requests: vec![request], ..ActRequests::new(observations) }).unwrap()
                    [0]
                .q
                .clone()
            };
            let before = values();
            server.refresh(PublishedParameters::of(&learner(2)).unwrap()).unwrap();
            assert_eq!(values() != before, follows);
            server.refresh_evaluators(PublishedParameters::of(&learner(3)).unwrap()).unwrap();
            assert_ne!(values(), before);
            drop(client);
            server.finish().unwrap();
        }
    }

    #[test]
    fn an_invalid_observation_is_reported_at_once_and_to_its_client_only() {
        const LONG: Duration = Duration::from_secs(60);
        let (config, server, [mut first, mut second, mut third]) = three_clients(LONG);
        let start = Instant::now();
        let asked = thread::scope(|scope| {
            let asked = [(0, &mut first), (1, &mut second)].map(|(slot, client)| {
                let config = &config;
                scope.spawn(move || ask(client, config, slot))
            });
            for (slot, row, last_observation, expected) in [
                (2, 1, None, "one of 1 rows"),
                (2, 0, Some(vec![0; 3]), "observation has 3 values"),
                (3, 0, None, "one of 3 environments"),
            ] {
                let error = ask_about(&mut third, &config, slot, row, last_observation).unwrap_err().to_string();
                assert!(error.contains(expected), "{error}");
            }
            assert!(asked.iter().all(|asked| !asked.is_finished()), "a batch was complete without the third client");
            assert_eq!(ask(&mut third, &config, 2).unwrap(), 1);
            asked.map(|asked| asked.join().unwrap().unwrap())
        });
        assert_eq!(asked, [1, 1]);
        drop((first, second, third));
        server.finish().unwrap();
        assert!(start.elapsed() < LONG, "a batch waited although it was complete");
    }

    /// A server that gathers batches for up to `max_wait`, with three clients.
    fn three_clients(max_wait: Duration) -> (Config, InferenceServer, [InferenceClient; 3]) {
        let mut config = config(&[]);
        // Longer than a run may wait, so that a busy machine cannot pass for a batch that waited.
        config.inference.max_wait_microseconds = max_wait.as_micros() as u64;
        let server = start(&config, &published(&config), 3);
        let clients = [(); 3].map(|()| server.client(Role::Actor));
        (config, server, clients)
    }

    #[test]
    fn a_batch_is_complete_once_every_present_client_has_asked() {
        const LONG: Duration = Duration::from_secs(60);
        let (config, server, [mut first, mut second, mut third]) = three_clients(LONG);
        let config = &config;
        let start = Instant::now();
        thread::scope(|scope| {
            for (slot, client) in [&mut first, &mut second, &mut third].into_iter().enumerate() {
                scope.spawn(move || ask(client, config, slot).unwrap());
            }
        });
        let away = third.away();
        thread::scope(|scope| {
            scope.spawn(|| ask(&mut first, config, 0).unwrap());
            ask(&mut second, config, 1).unwrap();
        });
        drop(away);
        // Once it is back, the server waits for it again, until it is dropped.
        thread::scope(|scope| {
            let asked = [(0, &mut first), (1, &mut second)]
                .map(|(slot, client)| scope.spawn(move || ask(client, config, slot).unwrap()));
            thread::sleep(Duration::from_millis(100));
            assert!(asked.iter().all(|asked| !asked.is_finished()));
            drop(third);
        });
        drop((first, second));
        server.finish().unwrap();
        assert!(start.elapsed() < LONG, "a batch waited although it was complete");
    }

    #[test]
    fn waits_for_evaluators_only_if_there_are_no_actors() {
        const LONG: Duration = Duration::from_secs(60);
        let (config, server, [mut first, mut second, third]) = three_clients(LONG);
        let config = &config;
        drop(third);
        let mut evaluators = [(); 2].map(|()| server.client(Role::Evaluator));
        let start = Instant::now();
        thread::scope(|scope| {
            scope.spawn(|| ask(&mut first, config, 0).unwrap());
            ask(&mut second, config, 1).unwrap();
        });
        drop((first, second));
        let [quick, slow] = &mut evaluators;
        thread::scope(|scope| {
            let asked = scope.spawn(|| ask(quick, config, 0).unwrap());
            thread::sleep(Duration::from_millis(100));
            assert!(!asked.is_finished());
            ask(slow, config, 1).unwrap();
        });
        drop(evaluators);
        server.finish().unwrap();
        assert!(start.elapsed() < LONG, "a batch waited although it was complete");
    }

    #[test]
    fn waits_for_a_silent_client_no_longer_than_configured() {
        const WAIT: Duration = Duration::from_millis(200);
        let (config, server, [mut first, silent, mut third]) = three_clients(WAIT);
        let start = Instant::now();
        thread::scope(|scope| {
            scope.spawn(|| ask(&mut first, &config, 0).unwrap());
            ask(&mut third, &config, 2).unwrap();
        });
        let took = start.elapsed();
        assert!(took >= WAIT && took < Duration::from_secs(60), "{took:?}");
        drop((first, silent, third));
        server.finish().unwrap();
    }
}
