//! The Rust client whatsapp-business-rs: it sends messages and files, and its server verifies and parses webhooks.

use std::env::var;
use std::error::Error;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::mpsc::{unbounded_channel, UnboundedReceiver, UnboundedSender};
use whatsapp_business_rs::app::SubscriptionField;
use whatsapp_business_rs::client::{Client, MessageManager};
use whatsapp_business_rs::message::{Draft, IntoDraft, Media, MediaSource};
use whatsapp_business_rs::server::{EventContext, IncomingMessage, MessageUpdate};
use whatsapp_business_rs::{Message, Server, WebhookHandler};

struct Printer {
    received: UnboundedSender<Message>,
}

impl WebhookHandler for Printer {
    async fn handle_message(&self, _: EventContext, incoming: IncomingMessage) {
        let message = incoming.message;
        let kind = if message.text_body().is_some() { "text" } else { "other" };
        println!("message {kind} {}", message.sender.phone_id);
        self.received.send(message).unwrap();
    }

    async fn handle_message_update(&self, _: EventContext, update: MessageUpdate) {
        println!("status {} {}", format!("{:?}", update.status).to_lowercase(), update.message.message_id());
    }
}

async fn send(
    messages: &MessageManager<'_>,
    kind: &str,
    to: &str,
    draft: impl IntoDraft,
) -> Result<String, Box<dyn Error>> {
    let created = messages.send(to, draft).await?;
    println!("sent {kind} {}", created.message_id());
    Ok(created.message_id().to_owned())
}

async fn run(client: Client, mut received: UnboundedReceiver<Message>) -> Result<(), Box<dyn Error>> {
    let (reader, echo, token) = (var("READER")?, var("ECHO")?, var("TOKEN")?);
    let app = var("APP_ID")?;
    if client.app(app.as_str()).debug_token(token.as_str()).await?.is_valid {
        println!("done token");
    }
    let number = var("PHONE_NUMBER_ID")?;
    let messages = client.message(number.as_str());
    let text = send(&messages, "text", &reader, Draft::text("Hello").with_biz_opaque_callback_data("7")).await?;
    send(&messages, "quoted", &reader, Draft::text("Again").reply_to(text.as_str())).await?;
    let picture = std::fs::read(var("FILE")?)?;
    let png = "image/png".parse()?;
    let id = messages.upload_media(picture, png, "a.png").await?;
    let image = Media::new(MediaSource::id(id.as_str()), png).caption("A picture");
    send(&messages, "image", &reader, Draft::media(image)).await?;
    if messages.get_media_info(&id).await?.url().contains(&id) {
        println!("done url");
    }
    send(&messages, "location", &reader, Draft::location(48.2, 16.4).location_name("Vienna")).await?;
    let buttons = Draft::text("Soup?").add_reply_button("1", "Yes").add_reply_button("2", "No");
    send(&messages, "buttons", &reader, buttons).await?;
    let list = Draft::new().body("Soup?").list("Menu").add_list_option("1", "Soup", "Hot");
    send(&messages, "list", &reader, list).await?;
    let link = Draft::text("Shop").with_cta_url("https://shop.example", "Open");
    send(&messages, "link", &reader, link).await?;
    if messages.send(reader.as_str(), Draft::text("x".repeat(4097))).await.is_err() {
        println!("done error");
    }
    send(&messages, "echoed", &echo, Draft::text("Grüße 👍")).await?;
    let message = received.recv().await.ok_or("no message")?;
    if message.text_body().is_some_and(|body| body.contains("Grüße 👍")) {
        println!("done text");
    }
    messages.set_read(&message).await?;
    println!("done read");
    messages.set_replying(&message).await?;
    println!("done typing");
    send(&messages, "reaction", &echo, Draft::react('👍', &message)).await?;
    messages.delete_media(&id).await?;
    println!("done deleted");
    println!("done all");
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let client = Client::builder().api_version("v25.0").connect(var("TOKEN")?).await?;
    let address = format!("127.0.0.1:{}", var("PORT")?);
    let (sender, received) = unbounded_channel();
    let server = Server::builder()
        .endpoint(address.parse()?)
        .route("/hook")
        .verify_payload(var("APP_SECRET")?)
        .build();
    let webhook = (var("VERIFY_TOKEN")?, format!("http://{address}/hook"));
    let app = var("APP_ID")?;
    let registration = client.app(app).configure_webhook(webhook).events([SubscriptionField::Messages].into());
    tokio::spawn(async move {
        let served = server.serve(Printer { received: sender }).register_webhook(registration).await;
        println!("failed {served:?}");
    });
    while TcpStream::connect(&address).await.is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    println!("ready");
    tokio::io::stdin().read_u8().await?;
    if let Err(error) = run(client, received).await {
        println!("failed {error:?}");
    }
    std::future::pending().await
}
