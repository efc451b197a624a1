// The Java client restfb: it creates templates, sends messages and files, blocks users, and parses webhooks.
import com.restfb.BinaryAttachment;
import com.restfb.Body;
import com.restfb.DefaultFacebookClient;
import com.restfb.DefaultJsonMapper;
import com.restfb.FacebookClient;
import com.restfb.FacebookEndpoints;
import com.restfb.Parameter;
import com.restfb.Version;
import com.restfb.exception.FacebookOAuthException;
import com.restfb.types.GraphResponse;
import com.restfb.types.webhook.WebhookObject;
import com.restfb.types.webhook.whatsapp.WhatsappMessagesValue;
import com.restfb.types.whatsapp.WhatsAppBusinessPhoneNumber;
import com.restfb.types.whatsapp.WhatsAppMessageTemplate;
import com.restfb.types.whatsapp.platform.Message;
import com.restfb.types.whatsapp.platform.SendMessage;
import com.restfb.types.whatsapp.platform.Status;
import com.restfb.types.whatsapp.platform.SuccessfulResponse;
import com.restfb.types.whatsapp.platform.send.Contact;
import com.restfb.types.whatsapp.platform.send.Context;
import com.restfb.types.whatsapp.platform.send.Image;
import com.restfb.types.whatsapp.platform.send.Interactive;
import com.restfb.types.whatsapp.platform.send.Location;
import com.restfb.types.whatsapp.platform.send.Reaction;
import com.restfb.types.whatsapp.platform.send.Text;
import com.restfb.types.whatsapp.platform.send.contact.Name;
import com.restfb.types.whatsapp.platform.send.contact.Phone;
import com.restfb.types.whatsapp.platform.send.interactive.Action;
import com.restfb.types.whatsapp.platform.send.interactive.Button;
import com.restfb.util.EncodingUtils;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.URLDecoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;

class RestFb {
  static final Map<String, String> ENV = System.getenv();
  static final String NUMBER = ENV.get("PHONE_NUMBER_ID");
  static final BlockingQueue<Message> received = new LinkedBlockingQueue<>();
  static FacebookClient client;

  static synchronized void print(String line) {
    System.out.println(line);
  }

  static void done(String what, boolean succeeded) {
    if (!succeeded) throw new IllegalStateException(what);
    print("done " + what);
  }

  static String sent(String kind, SuccessfulResponse response) {
    String id = response.getMessages().get(0).getId();
    print("sent " + kind + " " + id);
    return id;
  }

  static String send(String kind, SendMessage.Type type, String to, java.util.function.Consumer<SendMessage> fill) {
    SendMessage message = new SendMessage(to);
    message.setType(type);
    fill.accept(message);
    return sent(kind, client.publish(NUMBER + "/messages", SuccessfulResponse.class, Body.withData(message)));
  }

  static void run() throws Exception {
    String reader = ENV.get("READER"), echo = ENV.get("ECHO"), waba = ENV.get("WABA_ID");
    done("token", client.debugToken(ENV.get("TOKEN")).isValid());
    done("number", client.fetchObject(NUMBER, WhatsAppBusinessPhoneNumber.class).getId().equals(NUMBER));
    String text = send("text", SendMessage.Type.text, reader, m -> m.setText(new Text("Hello")));
    send("quoted", SendMessage.Type.text, reader, m -> {
      m.setText(new Text("Again"));
      m.setContext(new Context(text));
    });
    byte[] picture = HttpClient.newHttpClient()
        .send(HttpRequest.newBuilder(URI.create(ENV.get("FILE_URL"))).build(), BodyHandlers.ofByteArray()).body();
    GraphResponse file = client.publish(NUMBER + "/media", GraphResponse.class,
        BinaryAttachment.with("file", "a.png", picture, "image/png"), Parameter.with("messaging_product", "whatsapp"));
    send("image", SendMessage.Type.image, reader, m -> m.setMedia(new Image(file.getId())));
    send("location", SendMessage.Type.location, reader, m -> m.setLocation(new Location(16.4, 48.2)));
    send("contacts", SendMessage.Type.contacts, reader, m -> {
      Contact contact = new Contact();
      Name name = new Name("Ana B");
      name.setFirstName("Ana");
      contact.setName(name);
      Phone phone = new Phone();
      phone.setPhone("+1555");
      contact.addPhone(phone);
      m.addContact(contact);
    });
    send("buttons", SendMessage.Type.interactive, reader, m -> {
      Interactive question = new Interactive(new Action().addButton(new Button("1", "Yes")));
      question.setType(Interactive.Type.button);
      question.setBody(new com.restfb.types.whatsapp.platform.send.interactive.Body("Soup?"));
      m.setInteractive(question);
    });
    client.publish(waba + "/message_templates", WhatsAppMessageTemplate.class,
        Parameter.with("name", "restfb"), Parameter.with("language", "en_US"), Parameter.with("category", "UTILITY"),
        Parameter.with("components", List.of(Map.of("type", "BODY", "text", "Good day {{1}}, welcome",
            "example", Map.of("body_text", List.of(List.of("Ana")))))));
    var templates = client.fetchConnection(waba + "/message_templates", WhatsAppMessageTemplate.class,
        Parameter.with("name", "restfb"));
    done("template", templates.getData().get(0).getStatus().equals("APPROVED"));
    // The library has no type for a template's message: it sends the fields as a form.
    sent("template", client.publish(NUMBER + "/messages", SuccessfulResponse.class,
        Parameter.with("messaging_product", "whatsapp"), Parameter.with("to", reader),
        Parameter.with("type", "template"), Parameter.with("template", Map.of("name", "restfb",
            "language", Map.of("code", "en_US"), "components", List.of(Map.of("type", "body",
                "parameters", List.of(Map.of("type", "text", "text", "Eva"))))))));
    done("template deleted", client.deleteObject(waba + "/message_templates", Parameter.with("name", "restfb")));
    try {
      send("refused", SendMessage.Type.text, reader, m -> m.setText(new Text("x".repeat(4097))));
    } catch (FacebookOAuthException error) {
      done("error", error.getErrorCode() == 100);
    }
    send("echoed", SendMessage.Type.text, echo, m -> m.setText(new Text("Grüße 👍")));
    Message message = received.take();
    done("text", message.getText().getBody().contains("Grüße 👍"));
    done("read", client.publish(NUMBER + "/messages", GraphResponse.class,
        Parameter.with("messaging_product", "whatsapp"), Parameter.with("status", "read"),
        Parameter.with("message_id", message.getId())).isSuccess());
    send("reaction", SendMessage.Type.reaction, echo, m -> {
      Reaction reaction = new Reaction(message.getId());
      reaction.setEmoji("👍");
      m.setReaction(reaction);
    });
    done("deleted", client.deleteObject(file.getId()));
    print("done all");
  }

  // Returns the HTTP status: 401 unless the library's HMAC of the body is the signature.
  static int receive(HttpExchange exchange) throws IOException {
    String body = new String(exchange.getRequestBody().readAllBytes(), StandardCharsets.UTF_8);
    String signature = "sha256=" + EncodingUtils.encodeAppSecretProof(ENV.get("APP_SECRET"), body);
    if (!signature.equals(exchange.getRequestHeaders().getFirst("X-Hub-Signature-256"))) return 401;
    WebhookObject webhook = new DefaultJsonMapper().toJavaObject(body, WebhookObject.class);
    for (var entry : webhook.getEntryList())
      for (var change : entry.getChanges())
        if (change.getValue() instanceof WhatsappMessagesValue value) {
          for (Status status : value.getStatuses()) print("status " + status.getStatus() + " " + status.getId());
          for (Message message : value.getMessages()) {
            print("message " + message.getType() + " " + message.getFrom());
            received.add(message);
          }
        }
    return 200;
  }

  static void answer(HttpExchange exchange) throws IOException {
    String query = exchange.getRequestURI().getQuery();
    if (exchange.getRequestMethod().equals("GET")) {
      boolean known = List.of(query.split("&")).contains("hub.verify_token=" + ENV.get("VERIFY_TOKEN"));
      String challenge = query.replaceAll(".*hub\\.challenge=([^&]*).*", "$1");
      byte[] bytes = URLDecoder.decode(challenge, StandardCharsets.UTF_8).getBytes();
      exchange.sendResponseHeaders(known ? 200 : 403, bytes.length);
      exchange.getResponseBody().write(bytes);
    } else {
      exchange.sendResponseHeaders(receive(exchange), -1);
    }
    exchange.close();
  }

  public static void main(String[] arguments) throws Exception {
    var https = new DefaultFacebookClient(ENV.get("TOKEN"), Version.VERSION_24_0);
    https.setFacebookEndpointUrls(new FacebookEndpoints() {
      @Override
      public String getGraphEndpoint() {
        return ENV.get("API_URL");
      }
    });
    client = https;
    HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(ENV.get("PORT"))), 0);
    server.setExecutor(Executors.newCachedThreadPool());
    server.createContext("/hook", RestFb::answer);
    server.start();
    print("ready");
    System.in.read();
    try {
      run();
    } catch (Throwable error) {
      print("failed " + error);
      error.printStackTrace(System.out);
    }
  }
}
