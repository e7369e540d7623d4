//! `lockgate keys`: the key ring's file, made and rotated by hand. Secrets are never printed.

use std::{
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use clap::{Args, Subcommand};
use lockgate_shared::keys::{KeyFile, KeyRing, KeyState};

use crate::{exit::Failure, print};

/// Which ring, and what to do with it.
#[derive(Args)]
pub struct KeysCommand {
    /// The key ring's file.
    #[arg(long, env = "LOCKGATE_KEYS__FILE", default_value = "lockgate-data/keys.toml", global = true)]
    file: PathBuf,
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Add a key: published, so that every process can verify it before it signs.
    New {
        /// Its name; the first free of k1, k2 … without one.
        kid: Option<String>,
    },
    /// Show the keys' names and states.
    List,
    /// Let a published key sign; the one before goes on verifying.
    Activate {
        /// Its name.
        kid: String,
    },
    /// Stop trusting a key: what it signed is refused from then on.
    Retire {
        /// Its name.
        kid: String,
    },
}

/// Runs `lockgate keys …`.
///
/// # Errors
/// What is wrong with the ring or the command.
pub fn run(command: &KeysCommand) -> Result<(), Failure> {
    let path = &command.file;
    let mut ring = match (&command.action, path.exists()) {
        (Action::New { .. }, false) => KeyFile::default(),
        _ => KeyFile::read(path).map_err(|problem| Failure::usage(problem.to_string()))?,
    };
    match &command.action {
        Action::New { kid } => {
            let kid = kid.clone().unwrap_or_else(|| free_name(&ring));
            if ring.keys.iter().any(|key| key.kid == kid) {
                return Err(Failure::usage(format!(
                    "{}: there is a key '{kid}' already; choose another name",
                    path.display()
                )));
            }
            let mut key = KeyFile::new_key(&kid, rand::random());
            // The first key of a ring has nothing to overlap with.
            if ring.keys.is_empty() {
                key.state = KeyState::Active;
            }
            ring.keys.push(key);
            write(path, &ring)?;
            print::line(format_args!("added key '{kid}' to {}", path.display()));
        }
        Action::List => {
            for key in &ring.keys {
                print::line(format_args!("{}\t{}", key.kid, format!("{:?}", key.state).to_lowercase()));
            }
        }
        Action::Activate { kid } => {
            ring.activate(kid).map_err(Failure::usage)?;
            write(path, &ring)?;
            print::line(format_args!("'{kid}' signs from the next start of each process"));
        }
        Action::Retire { kid } => {
            ring.retire(kid).map_err(Failure::usage)?;
            write(path, &ring)?;
            print::line(format_args!("'{kid}' is refused from the next start of each process"));
        }
    }
    Ok(())
}

fn free_name(ring: &KeyFile) -> String {
    (1..)
        .map(|n| format!("k{n}"))
        .find(|name| ring.keys.iter().all(|key| &key.kid != name))
        .unwrap_or_default()
}

/// The ring at `path`, or a fresh one made there when `create` is set and there is none.
///
/// # Errors
/// The file cannot be read or written, or the ring cannot be used.
pub fn open(path: &Path, create: bool) -> Result<KeyRing, Failure> {
    if create && !path.exists() {
        let mut key = KeyFile::new_key("k1", rand::random());
        key.state = KeyState::Active;
        write(path, &KeyFile { keys: vec![key] })?;
    }
    let file = KeyFile::read(path).map_err(|problem| Failure::usage(problem.to_string()))?;
    KeyRing::new(&file, &path.display().to_string()).map_err(|problems| {
        Failure::usage(problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    })
}

/// Writes beside and renames, so that a crash leaves the old ring or the new one, never half of one.
fn write(path: &Path, ring: &KeyFile) -> Result<(), Failure> {
    let failed =
        |error: std::io::Error| Failure::running(format!("{}: cannot be written ({error})", path.display()));
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    let text = ring.to_toml().map_err(Failure::running)?;
    let beside = path.with_extension("new");
    let _ = std::fs::remove_file(&beside);
    let mut file =
        std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside).map_err(failed)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
    std::fs::rename(&beside, path).map_err(failed)
}
