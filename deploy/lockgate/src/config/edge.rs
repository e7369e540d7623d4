//! The settings of the edge.

use ipnet::IpNet;
use lockgate_shared::{
    edge::{client::ForwardingHeader, networks::parse_networks, origin::OriginSecrets, rate_limit::Limit},
    limits::{CONNECTIONS_MAX, WRITE_QUEUE_MAX},
};

use super::{Config, Setting, list, put, secret, setting};

const NETWORKS: &str = "give networks such as [\"10.0.0.0/8\", \"2001:db8::/32\"]";
const LIMIT: &str = "give a limit such as \"200/s burst 10000\", or \"off\"";
const SECRET: &str = "give at least 32 random characters without spaces";

/// Settings that begin with `edge.`.
pub(super) const SETTINGS: &[Setting] = &[
    list("edge.trusted_proxies", NETWORKS, |c, v| put(&mut c.edge.trusted_proxies, networks(v))),
    setting("edge.forwarding_header", "use x-forwarded-for or forwarded", |c, v| {
        put(&mut c.edge.forwarding_header, forwarding_header(v))
    }),
    list("edge.unlimited_networks", NETWORKS, |c, v| put(&mut c.edge.unlimited_networks, networks(v))),
    secret("edge.origin_secret", SECRET, |c, v| origin_secret(&mut c.edge.origin_secrets, v)),
    secret("edge.origin_secret_next", SECRET, |c, v| origin_secret(&mut c.origin_secrets_next, v)),
    setting("edge.enter_limit", LIMIT, |c, v| put(&mut c.edge.enter_limit, limit(v))),
    setting("edge.turn_limit", LIMIT, |c, v| put(&mut c.edge.turn_limit, limit(v))),
    setting("edge.checkout_limit", LIMIT, |c, v| put(&mut c.edge.checkout_limit, limit(v))),
    setting("edge.pay_limit", LIMIT, |c, v| put(&mut c.edge.pay_limit, limit(v))),
    setting("edge.callback_limit", LIMIT, |c, v| put(&mut c.edge.callback_limit, limit(v))),
    setting("edge.account_limit", LIMIT, |c, v| put(&mut c.edge.account_limit, limit(v))),
    setting("edge.connections_per_network_max", "give a number such as 10000", |c, v| {
        let most = u32::try_from(CONNECTIONS_MAX).unwrap_or(u32::MAX);
        put(&mut c.edge.connections_per_network_max, number(v, most))
    }),
    setting("edge.in_flight_max", "give a number such as 2000", |c, v| {
        let most = u32::try_from(WRITE_QUEUE_MAX).unwrap_or(u32::MAX);
        put(&mut c.edge.in_flight_max, number(v, most).map(|n| n as usize))
    }),
];

fn networks(text: &str) -> Result<Vec<IpNet>, String> {
    parse_networks(text)
}

fn forwarding_header(text: &str) -> Result<ForwardingHeader, String> {
    match text.to_ascii_lowercase().as_str() {
        "x-forwarded-for" => Ok(ForwardingHeader::XForwardedFor),
        "forwarded" => Ok(ForwardingHeader::Forwarded),
        _ => Err(format!("'{text}' is no header that is read")),
    }
}

fn limit(text: &str) -> Result<Option<Limit>, String> {
    if text == "off" { Ok(None) } else { text.parse().map(Some) }
}

pub(super) fn number(text: &str, most: u32) -> Result<u32, String> {
    match text.parse() {
        Ok(number) if (1..=most).contains(&number) => Ok(number),
        Ok(number) => Err(format!("{number} is not between 1 and {most}")),
        Err(_) => Err(format!("'{text}' is no whole number")),
    }
}

/// A later source's secret takes the place of an earlier one's.
fn origin_secret(place: &mut OriginSecrets, text: &str) -> Result<(), String> {
    let mut secrets = OriginSecrets::default();
    secrets.add(text)?;
    *place = secrets;
    Ok(())
}

impl Config {
    /// The edge's settings, with what other settings say about it.
    pub fn edge(&self) -> lockgate_shared::edge::EdgeSettings {
        let mut edge = self.edge.clone();
        edge.origin_secrets.extend(&self.origin_secrets_next);
        edge.is_https = self.public_url.as_deref().is_some_and(|url| url.starts_with("https://"));
        edge
    }
}

#[cfg(test)]
mod tests {
    use super::super::load;

    fn loaded(file: &str) -> Result<super::Config, String> {
        load(Some(("f.toml", file)), std::iter::empty(), &[])
            .map_err(|problems| problems.iter().map(|problem| format!("{problem}\n")).collect())
    }

    #[test]
    fn the_edge_is_read_from_a_file() {
        let config = loaded(
            "public_url = \"https://shop.example\"\n[edge]\ntrusted_proxies = [\"10.0.0.0/8\", \"fd00::/8\"]\n\
             unlimited_networks = []\nenter_limit = \"5/s burst 9\"\nturn_limit = \"off\"\nin_flight_max = 7\n",
        )
        .unwrap();
        let edge = config.edge();
        assert_eq!(edge.trusted_proxies.len(), 2);
        assert!(edge.unlimited_networks.is_empty() && edge.is_https && edge.turn_limit.is_none());
        assert_eq!(edge.enter_limit.unwrap().to_string(), "5/s burst 9");
        assert_eq!(edge.in_flight_max, 7);
    }

    #[test]
    fn every_slip_is_named_and_no_secret_shown() {
        let text = loaded(
            "[edge]\ntrusted_proxys = []\ntrusted_proxies = [\"10.0.0.1/8\"]\nenter_limit = \"200\"\n\
             in_flight_max = 0\nconnections_per_network_max = 1000000\norigin_secret = \"my-short-secret\"\n\
             forwarding_header = \"x-real-ip\"\ncallback_limit = [\"1/s burst 1\"]\n",
        )
        .unwrap_err();
        assert_eq!(text.lines().count(), 8, "{text}");
        assert!(
            text.contains("did you mean 'edge.trusted_proxies'") && text.contains("10.0.0.0/8"),
            "{text}"
        );
        assert!(!text.contains("my-short-secret"), "{text}");
    }

    #[test]
    fn two_origin_secrets_count_during_a_rotation() {
        let (one, next) = ("o".repeat(32), "n".repeat(32));
        let config =
            loaded(&format!("[edge]\norigin_secret = \"{one}\"\norigin_secret_next = \"{next}\"\n")).unwrap();
        for secret in [one, next] {
            let header = ("x-lockgate-origin".parse().unwrap(), secret.parse().unwrap());
            assert!(config.edge().origin_secrets.check(&http::HeaderMap::from_iter([header])).is_ok());
        }
        assert!(!format!("{config:?}").contains("ooo"));
    }
}
