//! Where a store is: one server, a master that sentinels name, or a Cluster.

use redis::{ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo as _, RedisError, RedisResult};

/// Port of a sentinel that is named without one.
const SENTINEL_PORT: u16 = 26_379;
/// Most sentinels or Cluster nodes one URL names.
const HOSTS_MAX: usize = 32;

/// A store's address, read from its URL.
#[derive(Clone)]
pub enum Address {
    /// `redis://host:port/db`, `unix:///path`.
    Single(Box<ConnectionInfo>),
    /// `redis+sentinel://user:password@host:port,host:port/master-name/db`.
    Sentinel(Box<Watched>),
    /// `redis+cluster://host:port,host:port`: one URL a node, any of which may be down.
    Cluster(Vec<ConnectionInfo>),
}

/// A master that sentinels watch.
#[derive(Clone)]
pub struct Watched {
    /// The sentinels, in the URL's order.
    pub sentinels: Vec<ConnectionInfo>,
    /// What the sentinels call the master.
    pub master: String,
    /// How the data servers are spoken to: user, password, database. Its own address is the first sentinel's.
    pub server: ConnectionInfo,
}

impl Address {
    /// Reads a URL.
    ///
    /// # Errors
    /// It is no URL of these kinds.
    pub fn parse(url: &str) -> RedisResult<Self> {
        if let Some(rest) = url.strip_prefix("redis+sentinel://") {
            return watched(rest).map(|watched| Self::Sentinel(Box::new(watched)));
        }
        if let Some(hosts) = url.strip_prefix("redis+cluster://") {
            return hosts_of(hosts)?
                .into_iter()
                .map(|host| format!("redis://{host}").into_connection_info())
                .collect::<RedisResult<_>>()
                .map(Self::Cluster);
        }
        url.into_connection_info().map(|info| Self::Single(Box::new(info)))
    }
}

fn watched(rest: &str) -> RedisResult<Watched> {
    let (login, rest) = rest.rsplit_once('@').map_or(("", rest), |(login, rest)| (login, rest));
    let mut parts = rest.split('/');
    let hosts = hosts_of(parts.next().unwrap_or_default())?;
    let master = parts.next().unwrap_or_default();
    let database = parts.next().unwrap_or_default();
    if master.is_empty() {
        return Err(refused("the URL names no master: redis+sentinel://host:26379,host:26379/master-name"));
    }
    if !(database.is_empty() || database.parse::<u32>().is_ok()) || parts.next().is_some() {
        return Err(refused("what follows the master's name is no database number"));
    }
    let at = if login.is_empty() { String::new() } else { format!("{login}@") };
    let mut sentinels = Vec::with_capacity(hosts.len());
    for host in &hosts {
        let info = format!("redis://{host}").into_connection_info()?;
        // The driver's own default is a data server's port.
        let info = match info.addr() {
            ConnectionAddr::Tcp(name, _) if !has_port(host) => {
                let name = name.clone();
                info.set_addr(ConnectionAddr::Tcp(name, SENTINEL_PORT))
            }
            _ => info,
        };
        sentinels.push(info);
    }
    let server = format!("redis://{at}{}/{database}", hosts[0]).into_connection_info()?;
    Ok(Watched { sentinels, master: master.to_owned(), server })
}

fn has_port(host: &str) -> bool {
    host.rsplit(']').next().is_some_and(|end| end.contains(':'))
}

fn hosts_of(list: &str) -> RedisResult<Vec<&str>> {
    let hosts: Vec<&str> = list.split(',').collect();
    if hosts.len() > HOSTS_MAX || hosts.iter().any(|host| host.is_empty()) {
        return Err(refused("the URL must name 1 to 32 hosts with commas between: host:port,host:port"));
    }
    Ok(hosts)
}

fn refused(words: &'static str) -> RedisError {
    RedisError::from((ErrorKind::InvalidClientConfig, words))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentinel(url: &str) -> Watched {
        match Address::parse(url) {
            Ok(Address::Sentinel(watched)) => *watched,
            _ => panic!("{url}"),
        }
    }

    #[test]
    fn a_sentinel_url_names_sentinels_master_login_and_database() {
        let watched = sentinel("redis+sentinel://shop:p%40ss@a:1,b,[::1]:3/main/2");
        let addresses: Vec<String> = watched.sentinels.iter().map(|info| info.addr().to_string()).collect();
        assert_eq!(addresses, ["a:1", "b:26379", "::1:3"]);
        assert_eq!(watched.master, "main");
        let server = watched.server.redis_settings();
        assert_eq!((server.username(), server.password(), server.db()), (Some("shop"), Some("p@ss"), 2));
        assert!(watched.sentinels.iter().all(|info| info.redis_settings().password().is_none()));
        assert_eq!(sentinel("redis+sentinel://a/main").server.redis_settings().db(), 0);
    }

    #[test]
    fn urls_that_name_too_little_are_refused() {
        for url in [
            "redis+sentinel://a:1",
            "redis+sentinel://a:1/",
            "redis+sentinel://a:1,,b:2/main",
            "redis+sentinel://a:1/main/x",
            "redis+sentinel://a:1/main/1/2",
            "redis+cluster://",
            "redis+cluster://a:1,",
            "http://a",
        ] {
            assert!(Address::parse(url).is_err(), "{url}");
        }
    }
}
