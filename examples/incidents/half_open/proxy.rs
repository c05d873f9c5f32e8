//! A reverse proxy that buffers: it reads ahead of its client, as far as its buffer goes.

use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy},
    net::{TcpListener, TcpSocket, TcpStream},
    sync::mpsc,
};

use crate::Error;

/// What it reads ahead, beside what its kernel does.
const CHUNK: usize = 16 * 1024;
const CHUNKS: usize = 16;

pub(super) async fn start(upstream: SocketAddr) -> Result<SocketAddr, Error> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(async move {
                if let Err(error) = pass(client, upstream).await {
                    eprintln!("the proxy lost a connection: {error}");
                }
            });
        }
    });
    Ok(address)
}

async fn pass(client: TcpStream, upstream: SocketAddr) -> Result<(), Error> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(CHUNK as u32 * 4)?;
    let server = socket.connect(upstream).await?;
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    tokio::spawn(async move { copy(&mut from_client, &mut to_server).await });
    let (ahead, mut behind) = mpsc::channel::<Bytes>(CHUNKS);
    tokio::spawn(async move {
        while let Some(chunk) = behind.recv().await {
            if to_client.write_all(&chunk).await.is_err() {
                return;
            }
        }
    });
    loop {
        let mut chunk = BytesMut::with_capacity(CHUNK);
        if from_server.read_buf(&mut chunk).await? == 0 || ahead.send(chunk.freeze()).await.is_err()
        {
            return Ok(());
        }
    }
}
