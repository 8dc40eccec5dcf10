//! Inference as a service: a thread that answers the turns of many players in common batches. Observations are sent to
//! the networks as their players ask, while others are still waited for.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::config::InferenceConfig;
use crate::error::{Result, TrainError};
use crate::inference::{Decide, Inference, SavedStates};
use crate::messages::{Decision, Role, Turns};
use crate::published::Published;
use crate::timesheet::{Activity, Stopwatch};

/// What the service is asked.
enum Request {
    /// A client is there, or is there again: it may ask.
    Arrive(Role),
    /// A client is away or gone: it does not ask.
    Leave(Role),
    Decide {
        role: Role,
        turns: Turns,
        answer: Sender<Result<Answer>>,
    },
    Refresh(Box<Published>),
    Save(Sender<Result<SavedStates>>),
}

/// Decisions, and the turns back, whose memory is used again.
struct Answer {
    decisions: Vec<Decision>,
    turns: Turns,
}

/// A running service; dropping it and all its clients ends the thread.
pub struct Service {
    requests: Sender<Request>,
    thread: JoinHandle<()>,
}

/// A player's connection to the service. It has one question at a time, so that a batch is complete once every actor has
/// asked that is not [`away`](Self::away). Evaluators are waited for only where there are no actors: often they
/// have but one group of environments, and everybody would stand still while those step.
pub struct Client {
    role: Role,
    requests: Sender<Request>,
}

/// While it lives, its client does not ask, and nobody waits for that.
pub struct Away<'a> {
    client: &'a Client,
}

impl Service {
    /// Starts the thread, whose time `stopwatch` takes.
    pub fn start(inference: Inference, config: &InferenceConfig, stopwatch: Stopwatch) -> Result<Self> {
        // Settles the caller's own number of threads: one that is not settled yet follows what another thread sets.
        tch::get_num_threads();
        let (requests, inbox) = channel();
        let desk = Desk {
            inference,
            inbox,
            max_batch: config.max_batch,
            max_wait: Duration::from_micros(config.max_wait_microseconds),
            present: [0; 2],
            published: None,
            failure: None,
            stopwatch,
        };
        let thread = thread::Builder::new().name("inference".to_owned()).spawn(move || desk.serve());
        Ok(Self { requests, thread: thread.map_err(|cause| TrainError::Thread { role: "inference", cause })? })
    }

    /// A connection for one player.
    pub fn client(&self, role: Role) -> Client {
        let client = Client { role, requests: self.requests.clone() };
        client.tell(Request::Arrive(role));
        client
    }

    /// Hands newer parameters over; they are used from the next batch on, or once they are complete.
    pub fn refresh(&self, published: Published) -> Result<()> {
        self.requests.send(Request::Refresh(Box::new(published))).map_err(|_| gone())
    }

    /// Every environment's recurrent state.
    pub fn save(&self) -> Result<SavedStates> {
        let (answer, states) = channel();
        self.requests.send(Request::Save(answer)).map_err(|_| gone())?;
        states.recv().map_err(|_| gone())?
    }

    /// Ends the thread once all clients are gone; whether it ended well.
    pub fn finish(self) -> Result<()> {
        drop(self.requests);
        self.thread.join().map_err(|_| TrainError::Panicked { role: "inference" })
    }
}

fn gone() -> TrainError {
    TrainError::Gone { role: "inference" }
}

impl Client {
    /// For what may take longer than gathering a batch: meanwhile no batch waits for this client.
    pub fn away(&self) -> Away<'_> {
        self.tell(Request::Leave(self.role));
        Away { client: self }
    }

    /// If the service is gone, whoever asks it next will hear of that.
    fn tell(&self, request: Request) {
        let _ = self.requests.send(request);
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.tell(Request::Leave(self.role));
    }
}

impl Drop for Away<'_> {
    fn drop(&mut self) {
        self.client.tell(Request::Arrive(self.client.role));
    }
}

impl Decide for Client {
    fn decide(&mut self, turns: &mut Turns) -> Result<Vec<Decision>> {
        // The service holds the only sender: if its thread dies over this request, the wait ends.
        let (answer, answers) = channel();
        let request = Request::Decide { role: self.role, turns: std::mem::take(turns), answer };
        self.requests.send(request).map_err(|_| gone())?;
        let answer = answers.recv().map_err(|_| gone())??;
        *turns = answer.turns;
        Ok(answer.decisions)
    }
}

/// The thread's side.
struct Desk {
    inference: Inference,
    inbox: Receiver<Request>,
    max_batch: usize,
    max_wait: Duration,
    /// Clients that may ask: actors and evaluators.
    present: [usize; 2],
    /// The newest parameters, until they are taken over.
    published: Option<Box<Published>>,
    /// Why newer parameters could not be taken over. Nobody waits for a refresh, so whoever asks next hears of it.
    failure: Option<String>,
    stopwatch: Stopwatch,
}

struct Waiting {
    role: Role,
    turns: Turns,
    answer: Sender<Result<Answer>>,
}

impl Desk {
    fn serve(mut self) {
        // A second team of libtorch's threads beside the learner's would spin while it waits, and its steps are small.
        tch::set_num_threads(1);
        let mut waiting: Vec<Waiting> = Vec::new();
        while let Ok(request) = self.inbox.recv() {
            self.stopwatch.lap(Activity::InferenceWaits);
            self.take(request, &mut waiting);
            self.stopwatch.lap(Activity::InferenceWorks);
            // The first turn of a batch waits for others, but not long, and not once the batch is complete.
            let until = Instant::now() + self.max_wait;
            while !waiting.is_empty() && !self.is_complete(&waiting) && rows(&waiting) < self.max_batch {
                match self.inbox.recv_timeout(until.saturating_duration_since(Instant::now())) {
                    Ok(request) => self.take(request, &mut waiting),
                    Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
                }
            }
            self.stopwatch.lap(Activity::InferenceGathers);
            if !waiting.is_empty() {
                self.answer(&mut waiting);
            }
            self.stopwatch.lap(Activity::InferenceWorks);
        }
    }

    fn take(&mut self, request: Request, waiting: &mut Vec<Waiting>) {
        // A client that went away needs no answer, here and below.
        match request {
            Request::Arrive(role) => self.present[role as usize] += 1,
            Request::Leave(role) => self.present[role as usize] -= 1,
            Request::Decide { role, turns, answer } => match self.inference.send(&turns) {
                Ok(()) => waiting.push(Waiting { role, turns, answer }),
                Err(error) => drop(answer.send(Err(error))),
            },
            Request::Refresh(published) => {
                // Those before may have become complete meanwhile, and these may not be for a while.
                self.refresh();
                self.published = Some(published);
            }
            Request::Save(answer) => drop(answer.send(self.inference.save())),
        }
    }

    /// Whether everybody has asked who is waited for.
    fn is_complete(&self, waiting: &[Waiting]) -> bool {
        let awaited = if self.present[Role::Actor as usize] > 0 { Role::Actor } else { Role::Evaluator };
        waiting.iter().filter(|one| one.role == awaited).count() >= self.present[awaited as usize]
    }

    /// Takes over newer parameters if they are there: the learner's device may still be at work on them.
    fn refresh(&mut self) {
        let Some(published) = self.published.take() else { return };
        let refreshed = match published.is_complete() {
            Ok(true) => self.inference.refresh(&published),
            Ok(false) => {
                self.published = Some(published);
                return;
            }
            Err(error) => Err(error),
        };
        self.failure = refreshed.err().map(|error| error.to_string());
    }

    fn answer(&mut self, waiting: &mut Vec<Waiting>) {
        self.refresh();
        if let Some(failure) = &self.failure {
            for one in waiting.drain(..) {
                drop(one.answer.send(Err(TrainError::Inference(failure.clone()))));
            }
            return;
        }
        let together: Vec<&Turns> = waiting.iter().map(|one| &one.turns).collect();
        match self.inference.decide_together(&together) {
            Ok(decisions) => {
                let mut decisions = decisions.into_iter();
                for Waiting { turns, answer, .. } in waiting.drain(..) {
                    let decisions = decisions.by_ref().take(turns.turns.len()).collect();
                    drop(answer.send(Ok(Answer { decisions, turns })));
                }
            }
            Err(error) => {
                let sentence = error.to_string();
                let mut first = Some(error);
                for one in waiting.drain(..) {
                    let error = first.take().unwrap_or_else(|| TrainError::Inference(sentence.clone()));
                    drop(one.answer.send(Err(error)));
                }
            }
        }
    }
}

fn rows(waiting: &[Waiting]) -> usize {
    waiting.iter().map(|one| one.turns.turns.len()).sum()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use agent::acting::ObservationRows;
    use agent::{Learner, ObservationKind, ObservationSpec};
    use tch::Device;

    use super::*;
    use crate::config::{Config, Sources};
    use crate::inference::RoleSizes;
    use crate::messages::{Place, Previous, Seen, Turn};

    fn config(settings: &[String]) -> Config {
        Sources { preset: Some("tiny".to_owned()), file: None, set: settings.to_vec() }.load().unwrap().config
    }

    fn published(config: &Config) -> Published {
        Published::of(&Learner::new(&config.agent, &observation(), 2, 1, Device::Cpu).unwrap()).unwrap()
    }

    fn observation() -> ObservationSpec {
        ObservationSpec { shape: vec![4], kind: ObservationKind::F32 }
    }

    fn start(config: &Config, published: &Published, slots: usize) -> Service {
        let Config { agent, intrinsic, .. } = config;
        let roles = RoleSizes { actors: slots, evaluators: 0 };
        let inference = Inference::new(agent, intrinsic, &observation(), 2, roles, Device::Cpu, published).unwrap();
        Service::start(inference, &config.inference, Stopwatch::new(&Arc::default())).unwrap()
    }

    /// One turn of an environment's first observation; how many decisions came.
    fn ask(client: &mut Client, config: &Config, slot: usize) -> Result<usize> {
        ask_seeing(client, config, slot, Seen::Row(0))
    }

    fn ask_seeing(client: &mut Client, config: &Config, slot: usize, observation: Seen) -> Result<usize> {
        let previous = Previous::nothing(config.agent.network.intrinsic.embedding);
        let (role, place) = (Role::Actor, Place::First);
        let turn = Turn { slot, role, place, policy: 0, wants_state: false, previous, observation };
        let observations = ObservationRows::on_host(1, self::observation().bytes());
        client.decide(&mut Turns { turns: vec![turn], observations }).map(|all| all.len())
    }

    /// Nobody waits for a refresh: the next who asks must hear that it failed, instead of old decisions for ever.
    #[test]
    fn a_refresh_that_failed_is_told_to_whoever_asks_next() {
        let (config, other) = (config(&[]), config(&["agent.network.core=24".to_owned()]));
        let good = published(&config);
        let service = start(&config, &good, 1);
        let mut client = service.client(Role::Actor);
        let mut ask = || ask(&mut client, &config, 0);
        assert_eq!(ask().unwrap(), 1);
        service.refresh(published(&other)).unwrap();
        let error = ask().unwrap_err();
        assert!(matches!(error, TrainError::Inference(_)), "{error}");
        service.refresh(good).unwrap();
        assert_eq!(ask().unwrap(), 1);
        drop(client);
        service.finish().unwrap();
    }

    /// Who asks with an observation that is not there, or that is none, hears of it at once; nobody else does.
    #[test]
    fn observations_that_cannot_be_sent_are_told_to_whom_they_belong() {
        const LONG: Duration = Duration::from_secs(10);
        let (config, service, [mut first, mut second, mut third]) = three_clients(LONG);
        let begun = Instant::now();
        let asked = thread::scope(|scope| {
            let asked = [(0, &mut first), (1, &mut second)].map(|(slot, client)| {
                let config = &config;
                scope.spawn(move || ask(client, config, slot))
            });
            for (slot, seen, sentence) in [
                (2, Seen::Row(1), "one of 1 rows"),
                (2, Seen::Last(vec![0; 3]), "observation has 3 values"),
                (3, Seen::Row(0), "one of 3 environments"),
            ] {
                let error = ask_seeing(&mut third, &config, slot, seen).unwrap_err().to_string();
                assert!(error.contains(sentence), "{error}");
            }
            assert!(asked.iter().all(|asked| !asked.is_finished()), "a batch was complete without the third");
            assert_eq!(ask(&mut third, &config, 2).unwrap(), 1);
            asked.map(|asked| asked.join().unwrap().unwrap())
        });
        assert_eq!(asked, [1, 1]);
        drop((first, second, third));
        service.finish().unwrap();
        assert!(begun.elapsed() < LONG, "somebody waited for nobody");
    }

    /// A service that gathers for so long, and three clients.
    fn three_clients(max_wait: Duration) -> (Config, Service, [Client; 3]) {
        let config = config(&[format!("inference.max_wait_microseconds={}", max_wait.as_micros())]);
        let service = start(&config, &published(&config), 3);
        let clients = [(); 3].map(|()| service.client(Role::Actor));
        (config, service, clients)
    }

    #[test]
    fn a_batch_is_complete_once_everybody_has_asked_who_is_there() {
        const LONG: Duration = Duration::from_secs(10);
        let (config, service, [mut first, mut second, mut third]) = three_clients(LONG);
        let config = &config;
        let begun = Instant::now();
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
        // Back, it is waited for, until it goes for good.
        thread::scope(|scope| {
            let asked = [(0, &mut first), (1, &mut second)]
                .map(|(slot, client)| scope.spawn(move || ask(client, config, slot).unwrap()));
            thread::sleep(Duration::from_millis(100));
            assert!(asked.iter().all(|asked| !asked.is_finished()));
            drop(third);
        });
        drop((first, second));
        service.finish().unwrap();
        assert!(begun.elapsed() < LONG, "somebody waited for nobody");
    }

    #[test]
    fn evaluators_are_waited_for_only_where_there_are_no_actors() {
        const LONG: Duration = Duration::from_secs(10);
        let (config, service, [mut first, mut second, third]) = three_clients(LONG);
        let config = &config;
        drop(third);
        let mut evaluators = [(); 2].map(|()| service.client(Role::Evaluator));
        let begun = Instant::now();
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
        service.finish().unwrap();
        assert!(begun.elapsed() < LONG, "somebody waited for nobody");
    }

    #[test]
    fn who_could_ask_and_does_not_is_waited_for_no_longer_than_configured() {
        const WAIT: Duration = Duration::from_millis(200);
        let (config, service, [mut first, silent, mut third]) = three_clients(WAIT);
        let begun = Instant::now();
        thread::scope(|scope| {
            scope.spawn(|| ask(&mut first, &config, 0).unwrap());
            ask(&mut third, &config, 2).unwrap();
        });
        let took = begun.elapsed();
        assert!(took >= WAIT && took < Duration::from_secs(10), "{took:?}");
        drop((first, silent, third));
        service.finish().unwrap();
    }
}
