//! Options of accepted sockets, so that a client which does not read is seen early and its connection ends.

use std::{io, os::fd::AsFd, time::Duration};

use socket2::SockRef;

use super::layer::DrainCreditLayer;

/// How much a kernel holds for a client, and for how long. Made by
/// [`DrainCreditLayer::socket_options`], so that it goes by the same rule as the layer.
///
/// Without them a kernel takes several megabytes from a stream before anything looks undrained, and a connection whose
/// stream was torn down stays open: an HTTP server does not ask a body for more, nor hear of its end, while its socket
/// is blocked.
///
/// With axum:
///
/// ```no_run
/// use axum::{Router, serve::ListenerExt};
/// use mcp_session_guard::drain_credit::DrainCreditLayer;
///
/// # async fn run(router: Router) -> std::io::Result<()> {
/// let layer = DrainCreditLayer::new();
/// let options = layer.socket_options();
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:8000").await?;
/// let listener = listener.tap_io(move |socket| {
///     if let Err(error) = options.apply(socket) {
///         eprintln!("an accepted socket has no bounds: {error}");
///     }
/// });
/// axum::serve(listener, router.layer(layer)).await
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct SocketOptions {
    send_buffer: usize,
    not_sent: u32,
    user_timeout: Duration,
}

impl DrainCreditLayer {
    /// Options for accepted sockets that go by this layer's liveness rule.
    #[cfg_attr(docsrs, doc(cfg(feature = "sockets")))]
    pub fn socket_options(&self) -> SocketOptions {
        SocketOptions {
            send_buffer: 64 * 1024,
            not_sent: 16 * 1024,
            // Not what this kernel buffers alone: a window stays closed until the other side has read its own buffer.
            user_timeout: self.liveness_allowance(u64::MAX),
        }
    }
}

impl SocketOptions {
    /// How many bytes the kernel buffers for one connection (`SO_SNDBUF`). Default 64 KiB. Linux keeps twice as much, for
    /// what it keeps beside the data.
    pub fn with_send_buffer(mut self, bytes: usize) -> Self {
        self.send_buffer = bytes;
        self
    }

    /// How many bytes may wait unsent before the socket counts as blocked (`TCP_NOTSENT_LOWAT`). Default 16 KiB.
    pub fn with_not_sent_low_water_mark(mut self, bytes: u32) -> Self {
        self.not_sent = bytes;
        self
    }

    /// How long sent data may stay unacknowledged, and a closed window closed, before the connection is reset
    /// (`TCP_USER_TIMEOUT`): as long as the layer would wait for a client whose wire is full, so that no slow one is cut
    /// before. With [`with_wire_buffer`](DrainCreditLayer::with_wire_buffer) at its default that is more than an hour; say
    /// there what the wire can hold once it is bounded.
    #[must_use]
    pub fn user_timeout(&self) -> Duration {
        self.user_timeout
    }

    /// Sets them, and `TCP_NODELAY`: events are small writes, which would wait for each other's acknowledgement.
    ///
    /// Where a system lacks `TCP_NOTSENT_LOWAT` and `TCP_USER_TIMEOUT` (those other than Linux and Android), the others
    /// are set.
    ///
    /// # Errors
    ///
    /// When an option cannot be set. Those before it are.
    pub fn apply(&self, socket: &impl AsFd) -> io::Result<()> {
        let socket = SockRef::from(socket);
        socket.set_tcp_nodelay(true)?;
        socket.set_send_buffer_size(self.send_buffer)?;
        #[cfg(any(target_os = "linux", target_os = "android"))]
        {
            socket.set_tcp_notsent_lowat(self.not_sent)?;
            socket.set_tcp_user_timeout(Some(self.user_timeout))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_go_by_the_liveness_rule() {
        let layer = DrainCreditLayer::new().with_liveness(Duration::from_secs(60), 1000);
        let options = layer.socket_options();
        assert_eq!(options.user_timeout().as_secs(), 60 + 4194);
        let bounded = layer.with_wire_buffer(500_000).socket_options();
        assert_eq!(bounded.user_timeout().as_secs(), 60 + 500);
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    #[test]
    fn they_are_set_on_a_real_socket() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let options = DrainCreditLayer::new().socket_options();
        options.apply(&client).unwrap();
        let socket = SockRef::from(&client);
        assert!(socket.tcp_nodelay().unwrap());
        assert_eq!(socket.send_buffer_size().unwrap(), 128 * 1024);
        assert_eq!(socket.tcp_notsent_lowat().unwrap(), 16 * 1024);
        assert_eq!(
            socket.tcp_user_timeout().unwrap(),
            Some(options.user_timeout()).map(|t| Duration::from_millis(t.as_millis() as u64))
        );
    }
}
