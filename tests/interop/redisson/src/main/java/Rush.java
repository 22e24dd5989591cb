import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/** Loops that are measured inside this JVM; the benchmark {@code family} has the same ones for redlatch. */
final class Rush {
    /** Of so many turns of a thread one writes. */
    private static final int READS_PER_WRITE = 20;

    private Rush() {
    }

    /** Takes and gives back for so long. Returns the median of what a pair takes, in ns, and their number. */
    static String pairs(Way way, long millis) throws InterruptedException {
        long[] times = new long[1 << 16];
        int count = 0;
        long start = System.nanoTime();
        for (long end = start + millis * 1_000_000; start < end && count < times.length; count++) {
            way.enter(false);
            way.leave(false);
            long done = System.nanoTime();
            times[count] = done - start;
            start = done;
        }
        Arrays.sort(times, 0, count);
        return times[count / 2] + " " + count;
    }

    /**
     * Lets a thread for each way take and give back again and again.
     *
     * <p>Returns the ns until all were done, the longest wait of a reader and of a writer in ns, and the number of times
     * of each thread.
     */
    static String rush(List<Way> ways, long millis, long insideMicros) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(ways.size());
        CyclicBarrier ready = new CyclicBarrier(ways.size() + 1);
        List<Future<long[]>> running = new ArrayList<>();
        for (int i = 0; i < ways.size(); i++) {
            Way way = ways.get(i);
            int first = i;
            running.add(threads.submit(() -> {
                ready.await();
                return one(way, first, millis, insideMicros);
            }));
        }
        ready.await();
        long start = System.nanoTime();
        long[] longest = new long[2];
        StringBuilder counts = new StringBuilder();
        for (Future<long[]> thread : running) {
            long[] did = thread.get();
            longest[0] = Math.max(longest[0], did[1]);
            longest[1] = Math.max(longest[1], did[2]);
            counts.append(' ').append(did[0]);
        }
        long took = System.nanoTime() - start;
        threads.shutdown();
        return took + " " + longest[0] + " " + longest[1] + counts;
    }

    /** Returns the number of times, and the longest wait of those that read and of those that wrote. */
    private static long[] one(Way way, int first, long millis, long insideMicros) throws InterruptedException {
        long[] did = new long[3];
        long end = System.nanoTime() + millis * 1_000_000;
        for (long asked = System.nanoTime(); asked < end; asked = System.nanoTime()) {
            boolean writes = (did[0] + first) % READS_PER_WRITE == 0;
            way.enter(writes);
            int kind = writes ? 2 : 1;
            did[kind] = Math.max(did[kind], System.nanoTime() - asked);
            if (insideMicros > 0) {
                TimeUnit.MICROSECONDS.sleep(insideMicros);
            }
            way.leave(writes);
            did[0]++;
        }
        return did;
    }
}
