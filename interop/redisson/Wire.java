import java.io.BufferedInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.net.Socket;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/** One RESP2 connection without a library. Replies are null, Long, String or a list of these; errors are exceptions. */
final class Wire implements AutoCloseable {
  static final class ErrorReply extends RuntimeException {
    private static final long serialVersionUID = 1;

    ErrorReply(String text) {
      super(text);
    }
  }

  private final Socket socket;
  private final InputStream in;

  Wire(String url) {
    URI uri = URI.create(url);
    try {
      socket = new Socket(uri.getHost(), uri.getPort());
      socket.setTcpNoDelay(true);
      in = new BufferedInputStream(socket.getInputStream());
    } catch (IOException err) {
      throw new UncheckedIOException(err);
    }
  }

  Object command(String... words) {
    StringBuilder request = new StringBuilder("*" + words.length + "\r\n");
    for (String word : words) {
      request.append('$').append(word.length()).append("\r\n").append(word).append("\r\n");
    }
    try {
      socket.getOutputStream().write(request.toString().getBytes(StandardCharsets.US_ASCII));
      return read();
    } catch (IOException err) {
      throw new UncheckedIOException(err);
    }
  }

  long number(String... words) {
    Object reply = command(words);
    if (reply instanceof Long n) {
      return n;
    }
    throw new AssertionError(String.join(" ", words) + " answered " + reply);
  }

  @Override
  public void close() {
    try {
      socket.close();
    } catch (IOException err) {
      throw new UncheckedIOException(err);
    }
  }

  private Object read() throws IOException {
    String line = line();
    String rest = line.substring(1);
    switch (line.charAt(0)) {
      case '+':
        return rest;
      case '-':
        throw new ErrorReply(rest);
      case ':':
        return Long.valueOf(rest);
      case '$':
        int length = Integer.parseInt(rest);
        if (length < 0) {
          return null;
        }
        String text = new String(in.readNBytes(length), StandardCharsets.UTF_8);
        in.skipNBytes(2);
        return text;
      case '*':
        int count = Integer.parseInt(rest);
        if (count < 0) {
          return null;
        }
        List<Object> list = new ArrayList<>();
        for (int i = 0; i < count; i++) {
          list.add(read());
        }
        return list;
      default:
        throw new IOException("unexpected reply " + line);
    }
  }

  private String line() throws IOException {
    StringBuilder line = new StringBuilder();
    for (int c = in.read(); c != '\r'; c = in.read()) {
      if (c < 0) {
        throw new EOFException("connection closed");
      }
      line.append((char) c);
    }
    in.skipNBytes(1);
    return line.toString();
  }
}
