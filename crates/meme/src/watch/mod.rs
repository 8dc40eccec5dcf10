//! `meme watch`: runs in a web browser while they train.
//!
//! The server only reads. It works when a page asks, at most every few seconds however many pages are open, and what it
//! keeps in memory is bounded.

mod access;
mod live;
mod routes;
mod run_page;
#[cfg(test)]
mod tests;
mod thinned;
mod video;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, anyhow, bail};
use axum_server::tls_rustls::RustlsConfig;
use clap::Args;
use tokio::runtime::Builder;

use self::access::Access;
use self::live::LiveRuns;
use self::routes::Site;
use self::video::Recorder;
use crate::console;
use crate::run_args::RUNS;

/// Port that is used if it is free and no other is requested.
const PORT: u16 = 6360;

/// Arguments of `meme watch`.
#[derive(Args)]
pub struct WatchArgs {
    /// Directory that contains the runs
    #[arg(value_name = "RUNS", default_value = RUNS)]
    runs: PathBuf,
    /// Address to listen on, such as 0.0.0.0:6360, or a port of this machine. Other machines need the token that is
    /// printed [default: port 6360 of this machine, or another free one]
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    listen: Option<SocketAddr>,
    /// Certificate to encrypt the traffic with, in PEM format
    #[arg(long, value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,
    /// Private key of the certificate, in PEM format
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
}

fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let local = |port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let address = text.parse().or_else(|_| text.parse().map(local));
    address.map_err(|_| "expected an IP address with a port, such as 0.0.0.0:6360, or a port".to_owned())
}

/// A server that is running.
#[derive(Debug)]
pub struct Watching {
    /// The address to open, with its token if it needs one.
    pub url: String,
    thread: JoinHandle<Result<()>>,
}

/// Shows the runs until the command is interrupted.
pub fn run(args: &WatchArgs) -> Result<()> {
    let runs = args.runs.display();
    if !args.runs.is_dir() {
        bail!("there is no directory {runs}; `meme watch DIRECTORY` shows the runs in another one");
    }
    let pair = args.certificate.as_deref().zip(args.key.as_deref());
    let watching = start(&args.runs, args.listen, pair)?;
    console::message(format_args!("showing the runs in {runs} at {}", watching.url));
    if watching.is_public(args) && pair.is_none() {
        console::warn(
            "the traffic is not encrypted: whoever can read it can also read the token; use --certificate and --key, or \
             listen on this machine only and forward the port with ssh",
        );
    }
    watching.thread.join().map_err(|_| anyhow!("the server has stopped"))?
}

impl Watching {
    fn is_public(&self, args: &WatchArgs) -> bool {
        args.listen.is_some_and(|address| !address.ip().is_loopback())
    }
}

/// Shows the runs for as long as this process trains one of them.
pub fn beside_training(runs: &Path, name: &str) -> Result<Watching> {
    let watching = start(runs, None, None)?;
    console::message(format_args!("watch the run at {}#{name}", watching.url));
    Ok(watching)
}

/// Starts the server in a thread of its own.
fn start(runs: &Path, listen: Option<SocketAddr>, certificate: Option<(&Path, &Path)>) -> Result<Watching> {
    let listener = match listen {
        Some(address) => TcpListener::bind(address)
            .with_context(|| format!("cannot listen on {address}; choose another address with --listen"))?,
        None => TcpListener::bind((Ipv4Addr::LOCALHOST, PORT))
            .or_else(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
            .context("cannot listen on any port of this machine")?,
    };
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let encrypted = certificate.map(|(certificate, key)| read_certificate(certificate, key)).transpose()?;
    let access = Access::new(address, encrypted.is_some())?;
    let url = url(address, encrypted.is_some(), access.token());
    let root = runs.canonicalize().with_context(|| format!("cannot read {}", runs.display()))?;
    let site = Arc::new(Site { runs: LiveRuns::new(&root), recorder: Recorder::new()? });
    let service = routes::router(site, Arc::new(access)).into_make_service();
    // One thread serves; the other reads files, whatever the number of pages.
    let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(1).build()?;
    let serve = move || -> Result<()> {
        runtime
            .block_on(async {
                match encrypted {
                    Some(config) => axum_server::from_tcp_rustls(listener, config)?.serve(service).await,
                    None => axum_server::from_tcp(listener)?.serve(service).await,
                }
            })
            .context("the server has stopped")
    };
    let thread = thread::Builder::new().name("watch".to_owned()).spawn(serve)?;
    Ok(Watching { url, thread })
}

fn read_certificate(certificate: &Path, key: &Path) -> Result<RustlsConfig> {
    // Another part of the program may have chosen one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let read = Builder::new_current_thread().build()?.block_on(RustlsConfig::from_pem_file(certificate, key));
    read.with_context(|| format!("cannot use the certificate {} with the key {}", certificate.display(), key.display()))
}

/// The address that a browser on this machine can open; others replace it by the name of this machine.
fn url(address: SocketAddr, encrypted: bool, token: Option<&str>) -> String {
    let scheme = if encrypted { "https" } else { "http" };
    let host = match address.ip() {
        ip if ip.is_unspecified() => train::run::host(),
        IpAddr::V6(ip) => format!("[{ip}]"),
        IpAddr::V4(ip) => ip.to_string(),
    };
    let token = token.map_or(String::new(), |token| format!("?token={token}"));
    format!("{scheme}://{host}:{}/{token}", address.port())
}
