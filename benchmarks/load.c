/* Load for a broker from outside its process: sends or pulls frames on C connections with N requests in flight each.

   load HOST PORT MODE CONNECTIONS IN_FLIGHT COUNT FRAME_FILE
       MODE  repeat: the frames of FRAME_FILE in turn, again and again
             pull:   its one frame, with `"@@@@@@@@@@@@@@@@@@@@"` in it replaced by the next offset of the connection and
                     blanks, read from "nextBeginOffset" of the answer (wrapping to 0 at the end of the queue)
   Prints: requests, seconds, answer bytes, answers with another code than 0, p50 and p99 of an answer in microseconds. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define RECEIVE_SIZE (4 << 20)
#define SAMPLES (1 << 20)

typedef struct {
    int socket;
    long sent, answered, wanted, offset;
    char *received;
    size_t filled;
    double *times; /* when each request in flight was sent, a ring */
} Connection;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

static int compare(const void *a, const void *b) {
    double difference = *(const double *)a - *(const double *)b;
    return (difference > 0) - (difference < 0);
}

static void write_all(int socket, const char *data, size_t size) {
    while (size) {
        ssize_t written = send(socket, data, size, MSG_NOSIGNAL);
        if (written <= 0) { perror("send"); exit(1); }
        data += written;
        size -= written;
    }
}

#define FRAMES_LIMIT 64

static char *frame, *batch; /* all frames of the file one behind the other; what is being sent */
static size_t frame_size, offset_at, starts[FRAMES_LIMIT + 1];
static int frames;
static int is_pull;

static void send_requests(Connection *connection, int in_flight) {
    long may = in_flight - (connection->sent - connection->answered);
    if (may > connection->wanted - connection->sent) may = connection->wanted - connection->sent;
    if (may <= 0) return;
    double sent_at = now();
    char *place = batch;
    for (long i = 0; i < may; i++) {
        int which = connection->sent % frames;
        size_t size = starts[which + 1] - starts[which];
        memcpy(place, frame + starts[which], size);
        if (is_pull) {
            char text[23]; /* as clients write it: zeros in front are read more slowly */
            int written = snprintf(text, sizeof text, "\"%ld\"", connection->offset);
            memset(text + written, ' ', 22 - written);
            memcpy(place + offset_at - 1, text, 22);
        }
        connection->times[connection->sent++ % in_flight] = sent_at;
        place += size;
    }
    write_all(connection->socket, batch, place - batch);
}

int main(int argc, char **argv) {
    if (argc != 8) { fprintf(stderr, "usage: see the head of load.c\n"); return 2; }
    is_pull = !strcmp(argv[3], "pull");
    int connections = atoi(argv[4]), in_flight = atoi(argv[5]);
    long count = atol(argv[6]), answered = 0, failed = 0, samples = 0;
    FILE *file = fopen(argv[7], "rb");
    if (!file) { perror(argv[7]); return 1; }
    fseek(file, 0, SEEK_END);
    frame_size = ftell(file);
    rewind(file);
    frame = malloc(frame_size);
    batch = malloc(frame_size * in_flight);
    if (fread(frame, 1, frame_size, file) != frame_size) return 1;
    for (size_t at = 0; at < frame_size && frames < FRAMES_LIMIT; frames++) {
        uint32_t length;
        memcpy(&length, frame + at, 4);
        starts[frames] = at;
        starts[frames + 1] = at += ntohl(length) + 4;
    }
    if (is_pull) {
        char *found = memmem(frame, frame_size, "@@@@@@@@@@@@@@@@@@@@", 20);
        if (!found) { fprintf(stderr, "no place for the offset in the frame\n"); return 1; }
        offset_at = found - frame;
    }
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[2]))};
    inet_pton(AF_INET, argv[1], &address.sin_addr);
    Connection *all = calloc(connections, sizeof *all);
    struct pollfd *polls = calloc(connections, sizeof *polls);
    double *latencies = malloc(SAMPLES * sizeof *latencies);
    uint64_t bytes = 0;
    for (int i = 0; i < connections; i++) {
        int one = 1;
        all[i].socket = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(all[i].socket, (struct sockaddr *)&address, sizeof address)) { perror("connect"); return 1; }
        setsockopt(all[i].socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        all[i].received = malloc(RECEIVE_SIZE);
        all[i].times = malloc(in_flight * sizeof(double));
        all[i].wanted = count / connections;
        polls[i] = (struct pollfd){.fd = all[i].socket, .events = POLLIN};
    }
    count = count / connections * connections;
    double start = now();
    for (int i = 0; i < connections; i++) send_requests(&all[i], in_flight);
    while (answered < count) {
        if (poll(polls, connections, 30000) <= 0) { fprintf(stderr, "no answer for 30 s\n"); return 1; }
        for (int i = 0; i < connections; i++) {
            if (!(polls[i].revents & (POLLIN | POLLHUP | POLLERR))) continue;
            Connection *c = &all[i];
            ssize_t size = recv(c->socket, c->received + c->filled, RECEIVE_SIZE - c->filled, 0);
            if (size <= 0) { fprintf(stderr, "the broker closed the connection\n"); return 1; }
            c->filled += size;
            size_t position = 0;
            double received_at = now();
            while (c->filled - position >= 8) {
                uint32_t length, header_size;
                memcpy(&length, c->received + position, 4);
                memcpy(&header_size, c->received + position + 4, 4);
                size_t whole = ntohl(length) + 4;
                if (c->filled - position < whole) break;
                char *header = c->received + position + 8;
                header_size = ntohl(header_size) & 0xFFFFFF;
                int is_good = memmem(header, header_size, "\"code\":0,", 9) != NULL;
                failed += !is_good;
                if (is_pull) {
                    char *next = memmem(header, header_size, "\"nextBeginOffset\":\"", 19);
                    char *end = memmem(header, header_size, "\"maxOffset\":\"", 13);
                    if (!next || !end) { fprintf(stderr, "an answer that is none of a pull\n"); return 1; }
                    c->offset = atol(next + 19);
                    if (c->offset >= atol(end + 13)) c->offset = 0;
                }
                if (samples < SAMPLES) latencies[samples++] = received_at - c->times[c->answered % in_flight];
                c->answered++;
                answered++;
                bytes += whole;
                position += whole;
            }
            memmove(c->received, c->received + position, c->filled - position);
            c->filled -= position;
            send_requests(c, in_flight);
        }
    }
    double seconds = now() - start;
    qsort(latencies, samples, sizeof *latencies, compare);
    printf("%ld %.6f %llu %ld %.1f %.1f\n", answered, seconds, (unsigned long long)bytes, failed,
           latencies[samples / 2] * 1e6, latencies[samples * 99 / 100] * 1e6);
    return 0;
}
