//! `meme actors`: environments on this machine that play for a learner on another one.

use std::path::PathBuf;
use std::thread::available_parallelism;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use remote::tls::{Fingerprint, Trust};
use remote::{ActorOptions, ActorPool, ConnectOptions, Token};
use train::run::stop::Stop;

use crate::{advice, console, install, options};

/// Arguments of `meme actors`.
#[derive(Args)]
pub struct ActorsArgs {
    /// The learner: the address that `meme train --actors-listen` printed
    #[arg(long, value_name = "HOST:PORT")]
    connect: String,
    /// Environments to run on this machine [default: four per core]
    #[arg(long, value_name = "N", value_parser = options::count::<usize>())]
    environments: Option<usize>,
    /// File with the learner's token [default: the variable MEME_ACTORS_TOKEN]
    #[arg(long, value_name = "PATH")]
    token_file: Option<PathBuf>,
    /// Fingerprint of the learner's certificate, as the learner printed it; turns TLS on
    #[arg(long, value_name = "SHA256", conflicts_with = "ca")]
    fingerprint: Option<Fingerprint>,
    /// PEM file with the authority that signed the learner's certificate; turns TLS on
    #[arg(long, value_name = "PATH")]
    ca: Option<PathBuf>,
    /// How long to look for a learner that is gone, in seconds [default: forever]
    #[arg(long, value_name = "SECONDS", value_parser = options::count::<u64>())]
    patience: Option<u64>,
}

/// Variable with the token, for those who do not want it in a file.
const TOKEN_VARIABLE: &str = "MEME_ACTORS_TOKEN";

/// Returns the token in a file, or that in the environment.
pub fn token(file: Option<&PathBuf>) -> Result<Option<Token>> {
    if let Some(file) = file {
        return Ok(Some(Token::read(file)?));
    }
    match std::env::var(TOKEN_VARIABLE) {
        Ok(text) => Token::new(text.trim()).map(Some).with_context(|| {
            format!("{TOKEN_VARIABLE} is invalid: expected 16 to 200 printable ASCII characters without spaces")
        }),
        Err(_) => Ok(None),
    }
}

/// Plays until the run is finished or a stop is requested.
pub fn run(args: &ActorsArgs) -> Result<()> {
    let stop = Stop::on_signals()?;
    let trust = match (&args.fingerprint, &args.ca) {
        (Some(fingerprint), _) => Some(Trust::Fingerprint(*fingerprint)),
        (None, Some(path)) => Some(Trust::read(path)?),
        (None, None) => None,
    };
    let token = token(args.token_file.as_ref())?;
    let host = args.connect.rsplit_once(':').map_or(args.connect.as_str(), |(host, _)| host);
    let is_loopback = ["localhost", "127.0.0.1", "[::1]"].contains(&host);
    if token.is_some() && trust.is_none() && !is_loopback {
        bail!("the token would cross the network as plain text; add --fingerprint or --ca");
    }
    let cores = available_parallelism().map_or(1, usize::from);
    let options = ActorOptions {
        connect: ConnectOptions { address: args.connect.clone(), token, trust, advice: advice::of_tls },
        environments: args.environments.unwrap_or(4 * cores),
        patience: args.patience.map(Duration::from_secs),
    };
    let task = |name: &str| {
        let environment = name.parse().map_err(|error| format!("{error}"))?;
        install::task(environment).map_err(|error| format!("{error:#}"))
    };
    ActorPool::play(&options, &task, &stop, &|text| console::message(text))?;
    console::message(if stop.is_requested() { "stopped" } else { "the run is finished" });
    Ok(())
}
