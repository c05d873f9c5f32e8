//! Ports for programs that cannot be told to choose one themselves.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::atomic::{AtomicU16, Ordering},
};

/// Where systems do not take the ports of outgoing connections from, which would be in the way now and then.
const FIRST: u16 = 20_000;
const COUNT: u16 = 10_000;

/// An address that nobody listens at, and that is given to nobody else in this process.
pub fn free() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Processes that run at the same time begin at different places.
    let begin = std::process::id().wrapping_mul(97) % u32::from(COUNT);
    for _ in 0..COUNT {
        let step = u32::from(NEXT.fetch_add(1, Ordering::Relaxed));
        let offset = (begin + step) % u32::from(COUNT);
        let port = FIRST + u16::try_from(offset).expect("below the count");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
    panic!("no port is free");
}
