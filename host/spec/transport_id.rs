//! Addresses of subsystems in the words of nvme-cli and SPDK, in place of `TRANSPORT://HOST:PORT/NQN`:
//!
//! * `rdma:traddr=10.0.0.2,trsvcid=4420,subnqn=NQN`
//! * `transport=rdma,traddr=10.0.0.2,trsvcid=4420,nqn=NQN`, as the kernel's `/dev/nvme-fabrics` takes it
//! * `trtype:RDMA adrfam:IPv4 traddr:10.0.0.2 trsvcid:4420 subnqn:NQN`, SPDK's transport identifier

use super::SpecError;
use std::net::IpAddr;

/// Parts of an address.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Transport,
    Family,
    Host,
    Port,
    Subsystem,
}

const WORDS: [(&str, Part); 7] = [
    ("transport", Part::Transport),
    ("trtype", Part::Transport),
    ("adrfam", Part::Family),
    ("traddr", Part::Host),
    ("trsvcid", Part::Port),
    ("subnqn", Part::Subsystem),
    ("nqn", Part::Subsystem),
];

fn part(key: &str) -> Option<Part> {
    WORDS.iter().find(|(word, _)| *word == key).map(|(_, part)| *part)
}

/// Splits `KEY=VALUE`, or `KEY:VALUE`, if the key is one of [`WORDS`].
fn word(text: &str, separator: char) -> Option<(Part, &str)> {
    let (key, value) = text.split_once(separator)?;
    Some((part(key)?, value))
}

/// Replaces an address in words by one field `TRANSPORT://HOST:PORT/NQN`, and leaves the options. Fields of another form
/// stay as they are.
///
/// # Errors
/// [`SpecError::BadOption`] if a word is missing, given twice, or has an invalid value.
pub(super) fn replace(fields: &mut Vec<Vec<u8>>) -> Result<(), SpecError> {
    let Some(first) = fields.first().and_then(|f| str::from_utf8(f).ok()).map(str::to_owned) else { return Ok(()) };
    let mut address = Address { text: first.clone(), ..Address::default() };
    if first.split_whitespace().next().is_some_and(|w| word(w, ':').is_some()) {
        for text in first.split_whitespace() {
            let (part, value) =
                word(text, ':').ok_or_else(|| address.wrong(format!("`{text}` is no word of SPDK's")))?;
            address.set(part, value)?;
        }
        fields.remove(0);
    } else {
        let (transport, rest) = match first.split_once(':') {
            Some((transport, rest)) if word(rest, '=').is_some() => (Some(transport), rest),
            _ if word(&first, '=').is_some() => (None, first.as_str()),
            _ => return Ok(()),
        };
        if let Some(transport) = transport {
            address.set(Part::Transport, transport)?;
        }
        fields[0] = rest.as_bytes().to_vec();
        let mut options = Vec::new();
        for field in std::mem::take(fields) {
            match str::from_utf8(&field).ok().and_then(|f| word(f, '=')) {
                Some((part, value)) => address.set(part, value)?,
                None => options.push(field),
            }
        }
        *fields = options;
    }
    fields.insert(0, address.whole()?.into_bytes());
    Ok(())
}

#[derive(Default)]
struct Address {
    text: String,
    transport: Option<String>,
    family: Option<String>,
    host: Option<String>,
    port: Option<String>,
    subsystem: Option<String>,
}

impl Address {
    fn wrong(&self, reason: impl Into<String>) -> SpecError {
        SpecError::BadOption { option: self.text.clone(), reason: reason.into() }
    }

    fn set(&mut self, part: Part, value: &str) -> Result<(), SpecError> {
        let place = match part {
            Part::Transport => &mut self.transport,
            Part::Family => &mut self.family,
            Part::Host => &mut self.host,
            Part::Port => &mut self.port,
            Part::Subsystem => &mut self.subsystem,
        };
        match (place.is_some(), value.is_empty()) {
            (false, false) => {
                *place = Some(value.to_owned());
                Ok(())
            }
            (true, _) => Err(self.wrong(format!("`{value}`: this part of the address was given before"))),
            (_, true) => Err(self.wrong("a part of the address has no value")),
        }
    }

    /// Returns `TRANSPORT://HOST:PORT/NQN`.
    fn whole(&self) -> Result<String, SpecError> {
        let wanted =
            |part: &Option<String>, name: &str| part.clone().ok_or_else(|| self.wrong(format!("{name} is missing")));
        let transport = wanted(&self.transport, "the transport (transport=tcp or transport=rdma)")?.to_lowercase();
        let host = wanted(&self.host, "the address (traddr=)")?;
        let subsystem = wanted(&self.subsystem, "the name of the subsystem (subnqn=)")?;
        if host.contains(['/', '[', ']']) || host.chars().any(char::is_whitespace) {
            return Err(self.wrong(format!("`{host}` is no name or IP address")));
        }
        let family = host.parse::<IpAddr>().ok().map(|a| if a.is_ipv4() { "ipv4" } else { "ipv6" });
        let same = |given: &String| family.is_none_or(|f| given.eq_ignore_ascii_case(f));
        if let Some(given) = self.family.as_ref().filter(|g| !same(g)) {
            return Err(self.wrong(format!("`{host}` is no address of family {given}")));
        }
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        let port = self.port.as_ref().map_or_else(String::new, |p| format!(":{p}"));
        Ok(format!("{transport}://{host}{port}/{subsystem}"))
    }
}

#[cfg(test)]
mod tests {
    use crate::spec::DeviceSpec;

    #[test]
    fn words_of_other_programs_are_read_as_one_address() {
        for (text, printed) in [
            ("rdma:traddr=10.0.0.2,trsvcid=4421,subnqn=nqn.a:b", "nvmf:rdma://10.0.0.2:4421/nqn.a:b"),
            ("tcp:subnqn=nqn.a:b,queues=2,traddr=h,nsid=3", "nvmf:tcp://h:4420/nqn.a:b,queues=2,nsid=3"),
            ("transport=rdma,traddr=fe80::1,trsvcid=9,nqn=n", "nvmf:rdma://[fe80::1]:9/n"),
            (
                "trtype:RDMA adrfam:IPv4 traddr:10.0.0.2 trsvcid:4420 subnqn:nqn.a:b,nsid=2",
                "nvmf:rdma://10.0.0.2:4420/nqn.a:b,nsid=2",
            ),
            ("rdma:traddr=h,adrfam=ipv6,subnqn=n", "nvmf:rdma://h:4420/n"),
        ] {
            let read = format!("nvmf:{text}").parse::<DeviceSpec>();
            assert_eq!(read.map(|s| s.to_string()).as_deref(), Ok(printed), "{text}");
        }
    }

    #[test]
    fn incomplete_and_contradictory_addresses_are_refused() {
        for (text, word) in [
            ("rdma:traddr=10.0.0.2", "subnqn="),
            ("rdma:subnqn=n", "traddr="),
            ("traddr=10.0.0.2,subnqn=n", "transport=tcp"),
            ("rdma:traddr=a,traddr=b,subnqn=n", "given before"),
            ("rdma:traddr=,subnqn=n", "no value"),
            ("rdma:traddr=10.0.0.2/x,subnqn=n", "`10.0.0.2/x`"),
            ("rdma:traddr=10.0.0.2,adrfam=ipv6,subnqn=n", "family ipv6"),
            ("rdma:traddr=h,trsvcid=x,subnqn=n", "`x`"),
            ("fc:traddr=h,subnqn=n", "rdma://"),
            ("trtype:RDMA 10.0.0.2", "`10.0.0.2`"),
            ("rdma:traddr=h,subnqn=n,fast", "`fast`"),
        ] {
            let said = format!("nvmf:{text}").parse::<DeviceSpec>().unwrap_err().to_string();
            assert!(said.contains(word), "{text}: {said}");
        }
    }
}
