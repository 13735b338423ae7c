package com.example.rewards;

import io.grpc.Server;
import io.grpc.netty.NettyServerBuilder;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import plaudit.reward.v1.RewardServiceGrpc;

/**
 * A reward server. The only argument is HOST:PORT; it may also stand in REWARD_ADDRESS. Port 0 takes a free one;
 * the first line on stdout says which.
 */
public final class Main {
  private static final int MAX_FRAME_BYTES = 16 * 1024 * 1024;

  /** How long accepted work is still served after SIGTERM. */
  private static final Duration GRACE = Duration.ofSeconds(10);

  private Main() {}

  /** Serves until SIGTERM. */
  public static void main(String[] arguments) throws IOException, InterruptedException {
    String address = arguments.length > 0
        ? arguments[0]
        : System.getenv().getOrDefault("REWARD_ADDRESS", "127.0.0.1:50061");
    int colon = address.lastIndexOf(':');
    String host = address.substring(0, colon);
    int port = Integer.parseInt(address.substring(colon + 1));

    ExecutorService executor = Executors.newFixedThreadPool(Runtime.getRuntime().availableProcessors());
    RewardService service =
        new RewardService(List.of(new AnswerTag(), new EquationsHold()), MAX_FRAME_BYTES, executor);
    Health health = new Health(RewardServiceGrpc.SERVICE_NAME);
    Server server =
        NettyServerBuilder.forAddress(new InetSocketAddress(host, port))
            .addService(service)
            .addService(health)
            .maxInboundMessageSize(MAX_FRAME_BYTES)
            // A trainer pings a quiet stream every 20 s. By default that is abuse, and ends the connection.
            .permitKeepAliveTime(10, TimeUnit.SECONDS)
            .permitKeepAliveWithoutCalls(true)
            .build()
            .start();
    Runtime.getRuntime().addShutdownHook(new Thread(() -> stop(server, service, health), "stop"));
    System.out.println("listening on " + host + ":" + server.getPort());
    server.awaitTermination();
    executor.shutdown();
  }

  private static void stop(Server server, RewardService service, Health health) {
    health.stop();
    service.drain(GRACE);
    server.shutdown();
    try {
      server.awaitTermination(GRACE.toSeconds(), TimeUnit.SECONDS);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
    server.shutdownNow();
  }
}
