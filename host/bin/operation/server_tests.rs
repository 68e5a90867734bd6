use super::*;
use std::collections::VecDeque;
use std::net::TcpStream;

/// Longest wait for what must come, however busy the machine is.
const PATIENT: Duration = Duration::from_secs(120);

fn server(token: Option<&str>) -> (Server, SocketAddr) {
    let (listener, address) =
        Listener::tcp("127.0.0.1:0".parse().unwrap(), token.map(|t| t.as_bytes().to_vec())).unwrap();
    let shown = Shown { pid: 7, command: "bench nvme".to_owned() };
    (Server::start(vec![listener], shown).unwrap(), address)
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENT)).unwrap();
    stream
}

/// Sends a text and returns all that comes back.
fn ask(address: SocketAddr, text: &[u8]) -> String {
    let mut stream = connect(address);
    stream.write_all(text).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

const GET: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";

#[test]
fn metrics_and_observations_are_shown() {
    let (_server, address) = server(None);
    let text = ask(address, GET);
    assert!(text.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"), "{text}");
    assert!(text.contains("\nwarpbell_process_info{command=\"bench nvme\",version="), "{text}");
    let (_, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(text.contains(&format!("Content-Length: {}\r\n", body.len())), "{text}");
    let json = ask(address, b"GET /observe HTTP/1.1\r\n\r\n");
    let observed: Observed = serde_json::from_str(json.split_once("\r\n\r\n").unwrap().1).unwrap();
    assert_eq!((observed.pid, &*observed.command), (7, "bench nvme"));
    assert!(ask(address, b"GET /else HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
    let head = ask(address, b"HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"), "{head}");
}

#[test]
fn only_the_token_opens() {
    let (_server, address) = server(Some("0123456789abcdef"));
    let with =
        |token: &str| ask(address, format!("GET /metrics HTTP/1.1\r\nAuthorization: {token}\r\n\r\n").as_bytes());
    assert!(with("Bearer 0123456789abcdef").starts_with("HTTP/1.1 200 "));
    for wrong in ["Bearer 0123456789abcdeg", "Bearer", "Basic 0123456789abcdef", ""] {
        let text = with(wrong);
        assert!(text.starts_with("HTTP/1.1 401 ") && !text.contains("warpbell_"), "{text}");
    }
    assert!(ask(address, GET).starts_with("HTTP/1.1 401 "));
}

#[test]
fn nonsense_is_refused() {
    let (_server, address) = server(None);
    assert!(ask(address, b"\x16\x03\x01\x02\x00\x01\r\n").starts_with("HTTP/1.1 400 "));
    let huge = [b"GET / HTTP/1.1\r\nx: ".to_vec(), vec![b'y'; 1 << 20]].concat();
    assert!(ask(address, &huge).starts_with("HTTP/1.1 431 "));
    assert!(ask(address, b"POST /metrics HTTP/1.1\r\nContent-Length: 9\r\n\r\nquantity=").starts_with("HTTP/1.1 405 "));
    assert!(ask(address, GET).starts_with("HTTP/1.1 200 "));
}

#[test]
fn a_slow_client_is_cut_off_and_holds_no_one_up() {
    let (_server, address) = server(None);
    let begun = Instant::now();
    let mut slow = connect(address);
    slow.write_all(b"GET /metrics HTT").unwrap();
    assert!(ask(address, GET).starts_with("HTTP/1.1 200 "));
    // The connection ends without a response.
    assert_eq!(slow.read(&mut [0; 8]).unwrap_or(0), 0);
    assert!(begun.elapsed() >= LONGEST - Duration::from_millis(100));
}

#[test]
fn a_thousand_idle_connections_hold_no_one_up() {
    let (_server, address) = server(None);
    // Fewer are open at a time, since tests share the descriptors of a process. They are more than the backlog holds.
    let mut idle = VecDeque::new();
    for _ in 0..1000 {
        idle.push_back(TcpStream::connect_timeout(&address, PATIENT).unwrap());
        if idle.len() > 300 {
            idle.pop_front();
        }
    }
    assert!(ask(address, GET).starts_with("HTTP/1.1 200 "));
}

#[test]
fn a_crowd_from_other_addresses_closes_no_connection_of_a_known_reader() {
    let (_server, address) = server(None);
    assert!(ask(address, GET).starts_with("HTTP/1.1 200 "));
    let mut slow = connect(address);
    slow.write_all(&GET[..9]).unwrap();
    // More than all connections of the server, from many addresses, half of which say something.
    let crowd: Vec<Socket> = (2..102)
        .map(|last| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            socket.bind(&SocketAddr::from(([127, 0, 0, last], 0)).into()).unwrap();
            socket.connect(&address.into()).unwrap();
            if last % 2 == 0 {
                // The server may have closed it already.
                let _ = (&socket).write(b"GET ");
            }
            socket
        })
        .collect();
    // The server has accepted all of them once it has answered a later one.
    assert!(ask(address, GET).starts_with("HTTP/1.1 200 "));
    slow.write_all(&GET[9..]).unwrap();
    let mut response = String::new();
    slow.read_to_string(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
    drop(crowd);
}

#[test]
fn the_end_of_a_server_waits_for_no_client() {
    let (server, address) = server(None);
    let mut idle = connect(address);
    assert!(ask(address, GET).starts_with("HTTP/1.1 200 "));
    drop(server);
    assert_eq!(idle.read(&mut [0; 8]).unwrap_or(0), 0);
    assert!(TcpStream::connect(address).is_err());
}
