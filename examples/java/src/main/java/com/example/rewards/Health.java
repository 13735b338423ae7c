package com.example.rewards;

import com.example.rewards.health.HealthCheckRequest;
import com.example.rewards.health.HealthCheckResponse;
import com.example.rewards.health.HealthCheckResponse.ServingStatus;
import com.example.rewards.health.HealthGrpc;
import io.grpc.Status;
import io.grpc.stub.ServerCallStreamObserver;
import io.grpc.stub.StreamObserver;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/** grpc.health.v1: all services are well until the server stops. */
final class Health extends HealthGrpc.HealthImplBase {
  private final Set<String> services;
  private final Set<StreamObserver<HealthCheckResponse>> watchers = ConcurrentHashMap.newKeySet();
  private volatile ServingStatus status = ServingStatus.SERVING;

  Health(String serviceName) {
    services = Set.of("", serviceName);
  }

  @Override
  public void check(HealthCheckRequest request, StreamObserver<HealthCheckResponse> observer) {
    if (!services.contains(request.getService())) {
      observer.onError(Status.NOT_FOUND.withDescription("there is no such service").asRuntimeException());
      return;
    }
    observer.onNext(response(status));
    observer.onCompleted();
  }

  @Override
  public void watch(HealthCheckRequest request, StreamObserver<HealthCheckResponse> observer) {
    if (!services.contains(request.getService())) {
      observer.onNext(response(ServingStatus.SERVICE_UNKNOWN));
      return;
    }
    ((ServerCallStreamObserver<HealthCheckResponse>) observer).setOnCancelHandler(() -> watchers.remove(observer));
    synchronized (this) {
      observer.onNext(response(status));
      watchers.add(observer);
    }
  }

  /** Tells it to those who watch, and ends their calls, so that the server can end. */
  synchronized void stop() {
    status = ServingStatus.NOT_SERVING;
    for (StreamObserver<HealthCheckResponse> watcher : watchers) {
      watcher.onNext(response(status));
      watcher.onCompleted();
    }
    watchers.clear();
  }

  private static HealthCheckResponse response(ServingStatus status) {
    return HealthCheckResponse.newBuilder().setStatus(status).build();
  }
}
