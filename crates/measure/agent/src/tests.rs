//! Tests of access control and channels, over connections within one reactor.

use std::net::SocketAddr;
use std::time::Duration;

use host::{Epoll, EpollOptions};
use reactor::ListenOptions;

use crate::channel;
use crate::channel::{Broken, Channel};
use crate::wire::Secret;
use crate::wire::handshake::Refusal;
use crate::wire::message::{Notification, Order};

fn secret(text: &str) -> Secret {
    Secret::new(text.as_bytes()).expect("a long one")
}

/// Runs a scenario with an agent whose secret is "correct horse battery".
fn beside_an_agent<T>(scene: impl AsyncFnOnce(SocketAddr) -> T) -> T {
    let world = Epoll::shared(EpollOptions::default()).expect("a world");
    reactor::block_on(world, async {
        let any = "127.0.0.1:0".parse().expect("an address");
        let listener = reactor::world()
            .listen(any, &ListenOptions::default())
            .expect("a port");
        let at = listener.local();
        let work = |channel| Box::pin(tell_the_time(channel)) as channel::Work;
        reactor::spawn(async move {
            channel::keep(&*listener, secret("correct horse battery"), work).await
        });
        scene(at).await
    })
}

/// The simplest agent: it only reports the time.
async fn tell_the_time(channel: Channel) {
    let Channel {
        mut receiver,
        sender,
    } = channel;
    while let Ok(order) = receiver
        .receive()
        .await
        .map(|message| Order::parse(&message))
    {
        match order {
            Ok(Order::Time) => sender.send(Notification::Time { ns: 0 }.text()),
            Ok(_) => {}
            Err(_) => return,
        }
    }
}

async fn come(to: SocketAddr, with: &str) -> Result<Channel, Broken> {
    Channel::connect(to, &secret(with), Order::Alive.text()).await
}

async fn hear(channel: &mut Channel) -> Option<Notification> {
    let message = channel.receiver.receive().await.ok()?;
    Some(Notification::parse(&message).expect("news"))
}

/// Returns the agent's response to these bytes, until the agent disconnects.
fn said_to(bytes: &'static [u8]) -> Vec<u8> {
    use std::io::{Read as _, Write as _};
    beside_an_agent(async move |at| {
        let (told, mut heard) = reactor::mailbox();
        std::thread::spawn(move || {
            let mut stream = std::net::TcpStream::connect(at).expect("an agent");
            stream
                .set_read_timeout(Some(Duration::from_secs(20)))
                .expect("a time");
            stream.write_all(bytes).expect("a few bytes");
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer); // it may be reset
            told.send(answer)
        });
        heard.recv().await.expect("an answer")
    })
}

#[test]
fn a_stranger_who_talks_nonsense_hears_nothing() {
    assert_eq!(
        said_to(b"GET / HTTP/1.1\r\nHost: agent\r\n\r\n"),
        b"",
        "a length of 1.2 GB"
    );
    assert_eq!(said_to(b"\0\0\0\x02{}"), b"");
    assert_eq!(said_to(&[0, 0, 4, 1]), b"", "more than a stranger may say");
}

#[test]
fn a_wrong_secret_is_not_let_in_and_the_right_one_is_right_after_it() {
    let outcome = beside_an_agent(async |at| {
        let wrong = come(at, "incorrect horse battery").await.err();
        (wrong, come(at, "correct horse battery").await.is_ok())
    });
    assert!(
        matches!(outcome, (Some(Broken::Refused(Refusal::WrongSecret)), true)),
        "{outcome:?}"
    );
}

#[test]
fn strangers_who_say_nothing_keep_nobody_out() {
    let came = beside_an_agent(async |at| {
        let silent: Vec<_> = (0..20)
            .map(|_| std::net::TcpStream::connect(at).expect("an agent"))
            .collect();
        let came = come(at, "correct horse battery").await;
        drop(silent);
        came.is_ok()
    });
    assert!(came);
}

#[test]
fn a_second_coordinator_is_told_of_the_first_and_let_in_when_it_is_gone() {
    beside_an_agent(async |at| {
        let mut first = come(at, "correct horse battery").await.expect("the first");
        first.sender.send(Order::Time.text());
        assert!(matches!(
            hear(&mut first).await,
            Some(Notification::Time { .. })
        ));
        let mut second = come(at, "correct horse battery").await.expect("the second");
        let here = second.receiver.receive().await.expect("news");
        assert!(matches!(
            Notification::parse(&here),
            Ok(Notification::Busy { coordinator }) if coordinator.starts_with("127.0.0.1:")
        ));
        assert!(matches!(
            second.receiver.receive().await,
            Err(Broken::Closed)
        ));
        drop(first);
        let mut third = come(at, "correct horse battery").await.expect("the third");
        third.sender.send(Order::Time.text());
        while !matches!(hear(&mut third).await, Some(Notification::Time { .. })) {
            third = come(at, "correct horse battery")
                .await
                .expect("the third, again");
            third.sender.send(Order::Time.text());
        }
    });
}

#[test]
fn a_peer_with_the_secret_who_talks_nonsense_is_left() {
    let heard = beside_an_agent(async |at| {
        let mut coordinator = come(at, "correct horse battery")
            .await
            .expect("a coordinator");
        coordinator.sender.send(b"{\"reboot\":null}".to_vec());
        hear(&mut coordinator).await
    });
    assert_eq!(heard, None);
}
