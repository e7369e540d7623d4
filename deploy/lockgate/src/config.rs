//! Configuration: one list of settings, read from a TOML file, then the environment, then flags; later wins.
//!
//! Every problem is reported at once, with where it stands, its value and what to do. A misspelt key is a problem,
//! never a silent default.

mod captcha;
mod edge;
mod gateway;
mod orders;
mod outbox;
mod store;

use std::{fmt, net::SocketAddr, path::PathBuf};

use lockgate_checkout::IntakeSettings;
use lockgate_shared::{
    edge::{EdgeSettings, origin::OriginSecrets},
    operator::OPERATOR_KEY_CHARS_MIN,
};

/// What one process runs with.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where shoppers are served.
    pub listen: SocketAddr,
    /// Where operators are served, if not on the same listener.
    pub operator_listen: Option<SocketAddr>,
    /// The folder of everything that lasts.
    pub data: PathBuf,
    /// The address that pages and links use, without a trailing slash; `None` means the listener's own.
    pub public_url: Option<String>,
    /// The first operator key.
    pub operator_key: Option<Secret>,
    /// A key that may look but not change.
    pub viewer_key: Option<Secret>,
    /// Redis for the line, the stock and the catalog; SQLite in the data folder without it.
    pub store_url: Option<Secret>,
    /// What every Redis key begins with.
    pub store_prefix: String,
    /// Replicas of the store that must have a claim before it is answered.
    pub replicas_required: u32,
    /// PostgreSQL for the orders; SQLite in the data folder without it.
    pub orders_url: Option<Secret>,
    /// The key ring's file; `keys.toml` in the data folder without it.
    pub keys_file: Option<PathBuf>,
    /// Where the stock gate listens, for roles that run without one.
    pub gate_url: Option<String>,
    /// Where the simulated payment gateway listens, for roles that run without one.
    pub gateway_url: Option<String>,
    /// Where the simulated gateway sends its notifications; this process's own listener without it.
    pub webhook_url: Option<String>,
    /// `text` or `json`.
    pub log_json: bool,
    /// Which log lines are written, such as `info` or `lockgate_checkout=debug,info`.
    pub log_filter: String,
    /// What the edge lets through; see [`Config::edge`].
    edge: EdgeSettings,
    /// The origin secret that will take the place of the present one.
    origin_secrets_next: OriginSecrets,
    /// The CAPTCHA at the door; see [`Config::captcha`].
    captcha: captcha::Draft,
    /// Who takes the money; see [`Config::stripe`].
    gateway: gateway::Draft,
    /// How orders are taken in.
    pub intake: IntakeSettings,
    /// Mails and webhooks; see [`Config::outbox`].
    outbox: outbox::Draft,
}

/// Text that never appears in a log or a message: a key, or a URL that may hold a password.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// The text itself, for the one place that needs it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("hidden")
    }
}

/// One thing wrong with the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblem {
    /// File, variable or flag.
    pub place: String,
    /// The setting.
    pub key: String,
    /// What is wrong, with the value where it is no secret.
    pub problem: String,
    /// What to do.
    pub remedy: String,
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}; {}", self.place, self.key, self.problem, self.remedy)
    }
}

type Apply = fn(&mut Config, &str) -> Result<(), String>;

struct Setting {
    key: &'static str,
    remedy: &'static str,
    secret: bool,
    /// May be written as a list; read as its members with commas between.
    is_list: bool,
    apply: Apply,
}

const fn setting(key: &'static str, remedy: &'static str, apply: Apply) -> Setting {
    Setting { key, remedy, secret: false, is_list: false, apply }
}

const fn secret(key: &'static str, remedy: &'static str, apply: Apply) -> Setting {
    Setting { key, remedy, secret: true, is_list: false, apply }
}

const fn list(key: &'static str, remedy: &'static str, apply: Apply) -> Setting {
    Setting { key, remedy, secret: false, is_list: true, apply }
}

fn settings() -> impl Iterator<Item = &'static Setting> {
    let parts = [
        SETTINGS,
        store::SETTINGS,
        orders::SETTINGS,
        edge::SETTINGS,
        captcha::SETTINGS,
        gateway::SETTINGS,
        outbox::SETTINGS,
    ];
    parts.into_iter().flatten()
}

const SETTINGS: &[Setting] = &[
    setting("listen", "give an address such as 127.0.0.1:8080", |c, v| put(&mut c.listen, address(v))),
    setting("operator_listen", "give an address such as 127.0.0.1:8090", |c, v| {
        put(&mut c.operator_listen, address(v).map(Some))
    }),
    setting("data", "name a folder", |c, v| put(&mut c.data, path(v))),
    setting("public_url", "give an address such as https://shop.example", |c, v| {
        put(&mut c.public_url, http_url(v).map(Some))
    }),
    secret("operator_key", "give at least 32 random characters", |c, v| {
        put(&mut c.operator_key, key(v).map(Some))
    }),
    secret("viewer_key", "give at least 32 random characters", |c, v| {
        put(&mut c.viewer_key, key(v).map(Some))
    }),
    secret(
        "store.url",
        "give redis://host:6379, redis+sentinel://host:26379,host:26379/master-name or redis+cluster://host:6379,host:6379",
        |c, v| put(&mut c.store_url, store::address(v).map(Some)),
    ),
    setting("store.prefix", "use letters, digits, ':' and '-', at most 32", |c, v| {
        put(&mut c.store_prefix, prefix(v))
    }),
    secret("orders.url", "give postgres://user:password@host:5432/database", |c, v| {
        put(&mut c.orders_url, url(v, &["postgres://", "postgresql://"]).map(Some))
    }),
    setting("keys.file", "name a key ring made with `lockgate keys new`", |c, v| {
        put(&mut c.keys_file, path(v).map(Some))
    }),
    setting("gate.url", "give the stock gate's address, such as http://gate:8081", |c, v| {
        put(&mut c.gate_url, http_url(v).map(Some))
    }),
    setting("gateway.url", "give the simulated gateway's address, such as http://gateway:8082", |c, v| {
        put(&mut c.gateway_url, http_url(v).map(Some))
    }),
    setting(
        "gateway.webhook_url",
        "give the checkout's address, such as http://checkout:8080/payment/webhook",
        |c, v| put(&mut c.webhook_url, http_url(v).map(Some)),
    ),
    setting("log.format", "use text or json", |c, v| put(&mut c.log_json, is_json(v))),
    setting("log.filter", "give a level such as info, or target=level,…", |c, v| {
        put(&mut c.log_filter, crate::telemetry::parse_filter(v).map(|_| v.to_owned()))
    }),
];

fn put<T>(place: &mut T, value: Result<T, String>) -> Result<(), String> {
    *place = value?;
    Ok(())
}

fn is_json(text: &str) -> Result<bool, String> {
    match text {
        "text" => Ok(false),
        "json" => Ok(true),
        other => Err(format!("'{other}' is no log format")),
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            operator_listen: None,
            data: PathBuf::from("lockgate-data"),
            public_url: None,
            operator_key: None,
            viewer_key: None,
            store_url: None,
            store_prefix: "lockgate:".into(),
            replicas_required: 0,
            orders_url: None,
            keys_file: None,
            gate_url: None,
            gateway_url: None,
            webhook_url: None,
            log_json: false,
            log_filter: "info".into(),
            edge: EdgeSettings::default(),
            origin_secrets_next: OriginSecrets::default(),
            captcha: captcha::Draft::default(),
            gateway: gateway::Draft::default(),
            intake: IntakeSettings::default(),
            outbox: outbox::Draft::default(),
        }
    }
}

/// Reads the file (name and text), the environment and the flags (`key`, value), in this order.
///
/// # Errors
/// Every problem found.
pub fn load(
    file: Option<(&str, &str)>,
    environment: impl Iterator<Item = (String, String)>,
    flags: &[(&str, String)],
) -> Result<Config, Vec<ConfigProblem>> {
    let mut config = Config::default();
    let mut problems = Vec::new();
    if let Some((name, text)) = file {
        apply_file(&mut config, name, text, &mut problems);
    }
    for (variable, value) in environment {
        if variable == "LOCKGATE_OPERATOR_URL" {
            // For `lockgate sale`, which calls a server and does not start one.
            continue;
        }
        if let Some(rest) = variable.strip_prefix("LOCKGATE_") {
            let key = rest.to_ascii_lowercase().replace("__", ".");
            apply(&mut config, &format!("environment {variable}"), &key, &value, &mut problems);
        }
    }
    for (key, value) in flags {
        apply(&mut config, &format!("flag --{}", key.replace('_', "-")), key, value, &mut problems);
    }
    // Whoever slipped in one of them has not left it out.
    if problems.is_empty() {
        problems = config.captcha.problems();
        problems.extend(store::problems(&config));
        problems.extend(config.outbox.problems());
        problems.extend(gateway::problems(&config));
    }
    if problems.is_empty() { Ok(config) } else { Err(problems) }
}

fn apply_file(config: &mut Config, name: &str, text: &str, problems: &mut Vec<ConfigProblem>) {
    let table: toml::Table = match toml::from_str(text) {
        Ok(table) => table,
        Err(error) => {
            // The message without its excerpt: the line may hold a password.
            let line =
                error.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
            problems.push(ConfigProblem {
                place: format!("{name}:{line}"),
                key: "file".into(),
                problem: error.message().to_owned(),
                remedy: "correct the TOML".into(),
            });
            return;
        }
    };
    for (key, value) in flatten("", &table) {
        let text = match value {
            toml::Value::String(text) => text,
            other @ (toml::Value::Integer(_) | toml::Value::Boolean(_)) => other.to_string(),
            toml::Value::Array(members) if is_list(&key) && members.iter().all(toml::Value::is_str) => {
                members.iter().filter_map(toml::Value::as_str).collect::<Vec<_>>().join(",")
            }
            // Whatever it holds, its name is what is wrong.
            _ if !settings().any(|setting| setting.key == key) => String::new(),
            _ => {
                problems.push(ConfigProblem {
                    place: name.to_owned(),
                    key,
                    problem: "is not a single value".into(),
                    remedy: "give one text".into(),
                });
                continue;
            }
        };
        apply(config, name, &key, &text, problems);
    }
}

fn is_list(key: &str) -> bool {
    settings().any(|setting| setting.is_list && setting.key == key)
}

fn flatten(prefix: &str, table: &toml::Table) -> Vec<(String, toml::Value)> {
    let mut flat = Vec::new();
    for (key, value) in table {
        let path = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        match value {
            toml::Value::Table(inner) => flat.extend(flatten(&path, inner)),
            other => flat.push((path, other.clone())),
        }
    }
    flat
}

fn apply(config: &mut Config, place: &str, key: &str, value: &str, problems: &mut Vec<ConfigProblem>) {
    let Some(setting) = settings().find(|setting| setting.key == key) else {
        let nearest = settings().min_by_key(|setting| distance(setting.key, key)).map_or("", |s| s.key);
        problems.push(ConfigProblem {
            place: place.to_owned(),
            key: key.to_owned(),
            problem: "there is no such setting".into(),
            remedy: format!("did you mean '{nearest}'? Remove or correct it"),
        });
        return;
    };
    if let Err(problem) = (setting.apply)(config, value) {
        let is_shown = setting.secret && value.len() >= 8;
        let problem = if is_shown { problem.replace(value, "the value") } else { problem };
        problems.push(ConfigProblem {
            place: place.to_owned(),
            key: key.to_owned(),
            problem,
            remedy: setting.remedy.into(),
        });
    }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| format!("'{text}' is no address with a port"))
}

fn path(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() { Err("is empty".into()) } else { Ok(PathBuf::from(text)) }
}

fn http_url(text: &str) -> Result<String, String> {
    let wrong = || format!("'{text}' is no http(s) address");
    let uri: http::Uri = text.parse().map_err(|_| wrong())?;
    let plain =
        uri.query().is_none() && uri.authority().is_some_and(|authority| !authority.as_str().contains('@'));
    if !matches!(uri.scheme_str(), Some("http" | "https")) || !plain {
        return Err(wrong());
    }
    Ok(text.trim_end_matches('/').to_owned())
}

fn url(text: &str, schemes: &[&str]) -> Result<Secret, String> {
    if schemes.iter().any(|scheme| text.len() > scheme.len() && text.starts_with(scheme)) {
        Ok(Secret(text.to_owned()))
    } else {
        Err(format!("does not begin with {}", schemes.join(" or ")))
    }
}

fn key(text: &str) -> Result<Secret, String> {
    let length = text.chars().count();
    if length < OPERATOR_KEY_CHARS_MIN {
        return Err(format!("has {length} characters; at least {OPERATOR_KEY_CHARS_MIN} are needed"));
    }
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("holds characters that cannot travel in a header".into());
    }
    Ok(Secret(text.to_owned()))
}

fn prefix(text: &str) -> Result<String, String> {
    let plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b':' | b'-' | b'_'));
    if text.len() > 32 || !plain { Err(format!("'{text}' is no key prefix")) } else { Ok(text.to_owned()) }
}

/// Edit distance (Levenshtein), to name the setting that was probably meant.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.bytes().enumerate() {
            let substituted = diagonal + usize::from(ca != cb);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(pairs: &[(&str, &str)]) -> impl Iterator<Item = (String, String)> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect::<Vec<_>>().into_iter()
    }

    #[test]
    fn later_sources_win() {
        let file = "listen = \"127.0.0.1:1\"\n[store]\nurl = \"redis://a\"";
        let config = load(
            Some(("f.toml", file)),
            environment(&[
                ("LOCKGATE_LISTEN", "127.0.0.1:2"),
                ("LOCKGATE_ORDERS__URL", "postgres://b"),
                ("HOME", "/"),
            ]),
            &[("listen", "127.0.0.1:3".into())],
        )
        .unwrap();
        assert_eq!(config.listen.port(), 3);
        assert_eq!(config.store_url.unwrap().reveal(), "redis://a");
        assert_eq!(config.orders_url.unwrap().reveal(), "postgres://b");
    }

    #[test]
    fn every_problem_is_reported_at_once_and_no_secret_is_shown() {
        let file = "listn = \"x\"\ndata = [1]\npublic_url = \"ftp://x\"";
        let given =
            environment(&[("LOCKGATE_OPERATOR_KEY", "hunter2"), ("LOCKGATE_STORE__URL", "http://:pw@host")]);
        let problems = load(Some(("f.toml", file)), given, &[("listen", "here".into())]).unwrap_err();
        let text = problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        assert_eq!(problems.len(), 6, "{text}");
        assert!(text.contains("did you mean 'listen'"), "{text}");
        assert!(!text.contains("hunter2") && !text.contains("pw@"), "{text}");
    }

    #[test]
    fn broken_toml_names_its_line() {
        let problems = load(Some(("f.toml", "a = 1\nb = = 2")), environment(&[]), &[]).unwrap_err();
        assert_eq!(problems[0].place, "f.toml:2");
    }

    #[test]
    fn every_setting_accepts_a_documented_example() {
        let secret = "s".repeat(32);
        let examples = [
            ("listen", "127.0.0.1:8080"),
            ("operator_listen", "127.0.0.1:8090"),
            ("data", "d"),
            ("public_url", "https://shop.example/"),
            ("operator_key", &"k".repeat(32)),
            ("viewer_key", &"v".repeat(32)),
            ("store.url", "redis://host:6379"),
            ("store.prefix", "lg:"),
            ("store.replicas_required", "1"),
            ("orders.url", "postgres://u:p@h/d"),
            ("keys.file", "keys.toml"),
            ("gate.url", "http://gate:8081"),
            ("gateway.url", "http://gateway:8082"),
            ("gateway.webhook_url", "http://checkout:8080/payment/webhook"),
            ("log.format", "json"),
            ("log.filter", "info"),
            ("edge.trusted_proxies", "10.0.0.0/8,fd00::/8"),
            ("edge.forwarding_header", "forwarded"),
            ("edge.unlimited_networks", ""),
            ("edge.origin_secret", &secret),
            ("edge.origin_secret_next", &secret),
            ("edge.enter_limit", "200/s burst 10000"),
            ("edge.turn_limit", "1000/s burst 20000"),
            ("edge.checkout_limit", "500/s burst 10000"),
            ("edge.pay_limit", "off"),
            ("edge.callback_limit", "200/s burst 2000"),
            ("edge.account_limit", "10/s burst 200"),
            ("edge.connections_per_network_max", "10000"),
            ("edge.in_flight_max", "2000"),
            ("captcha.provider", "turnstile"),
            ("captcha.site_key", "1x00000000000000000000AA"),
            ("captcha.secret", &secret),
            ("captcha.verify_url", "https://proxy.example/siteverify"),
            ("captcha.timeout_ms", "2000"),
            ("captcha.when_unreachable", "refuse"),
            ("captcha.send_address", "false"),
            ("orders.workers", "4"),
            ("orders.backlog_max", "20000"),
            ("orders.pace_per_second", "200"),
        ];
        // Those of Stripe do not go with the simulated gateway's; they are tried there.
        let examples = [&examples[..], &outbox::EXAMPLES].concat();
        assert_eq!(examples.len() + gateway::EXAMPLES.len(), settings().count());
        let flags: Vec<(&str, String)> = examples.iter().map(|(k, v)| (*k, (*v).to_owned())).collect();
        let config = load(None, environment(&[]), &flags).unwrap();
        assert_eq!(config.public_url.as_deref(), Some("https://shop.example"));
    }
}
