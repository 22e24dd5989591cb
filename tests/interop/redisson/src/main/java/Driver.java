import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

import org.redisson.Redisson;
import org.redisson.api.RBucket;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.BaseConfig;
import org.redisson.config.BaseMasterSlaveServersConfig;
import org.redisson.config.Config;
import org.redisson.config.SingleServerConfig;

/**
 * Redisson's locks under the control of another process.
 *
 * <p>A line on standard input is a command, its words separated by tabs: {@code number thread command word...}. Each
 * thread is a thread of this JVM, made when its name first comes up, and runs its commands one after the other. The
 * answer is a line on standard output, {@code number ok value} or {@code number failed exception message}, in the
 * order in which commands end.
 *
 * <pre>
 * open   client mode urls watchdogMillis timeoutMillis prefix     makes a client, see
 *                                             {@link #servers}; the prefix may be empty, and with {@code once=} before it
 *                                             it is put before names without it alone; the mode {@code default} is a
 *                                             client of one server with the defaults of Redisson but for these times
 * close  client
 * count  client lock other counter times      adds to a counter at another client that only the lock protects, by GET
 *                                             and SET
 * owner  client                               the field under which this thread stands in the hash of a lock
 * latch  client name operation words        an operation of a count-down latch
 * semaphore  client name operation words    an operation of a semaphore
 * permits client name operation words      an operation of a semaphore whose permits have ids
 * pairs  client kind name millis           what a pair of taking and giving back takes, see {@link Rush#pairs}
 * rush   clients kind name threads millis insideMicros      many threads that want the same, see {@link Rush#rush};
 *                                             the clients are separated by spaces, the threads those of each
 * lock, unlock, ...   client kind name ...    see {@link #operate}; kind is plain, read, write, fair, spin or fenced
 * </pre>
 *
 * <p>It ends with its standard input, at once and without a word to Redis.
 */
public final class Driver {
    private static final PrintStream OUT =
            new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
    private static final Map<String, RedissonClient> CLIENTS = new ConcurrentHashMap<>();
    private static final Map<String, ExecutorService> THREADS = new ConcurrentHashMap<>();

    private Driver() {
    }

    public static void main(String[] args) throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        OUT.println("ready");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            List<String> words = Arrays.asList(line.split("\t", -1));
            THREADS.computeIfAbsent(words.get(1), name -> Executors.newSingleThreadExecutor())
                    .execute(() -> answer(words));
        }
        Runtime.getRuntime().halt(0);
    }

    private static void answer(List<String> words) {
        String number = words.get(0);
        try {
            Object value = run(words.get(2), words.subList(3, words.size()));
            OUT.println(number + "\tok\t" + value);
        } catch (Throwable problem) {
            String message = String.valueOf(problem.getMessage()).replaceAll("\\s+", " ");
            OUT.println(number + "\tfailed\t" + problem.getClass().getSimpleName() + "\t" + message);
        }
    }

    private static Object run(String command, List<String> words) throws Exception {
        switch (command) {
            case "open":
                return open(words);
            case "close":
                CLIENTS.remove(words.get(0)).shutdown(0, 0, TimeUnit.MILLISECONDS);
                return "closed";
            case "count":
                RLock protecting = client(words.get(0)).getLock(words.get(1));
                return count(protecting, client(words.get(2)), words.get(3), Integer.parseInt(words.get(4)));
            case "owner":
                return id(client(words.get(0))) + ":" + Thread.currentThread().getId();
            case "latch":
                RCountDownLatch latch = client(words.get(0)).getCountDownLatch(words.get(1));
                return operate(latch, words.get(2), words.subList(3, words.size()));
            case "semaphore":
                RSemaphore semaphore = client(words.get(0)).getSemaphore(words.get(1));
                return operate(semaphore, words.get(2), words.subList(3, words.size()));
            case "permits":
                RPermitExpirableSemaphore permits =
                        client(words.get(0)).getPermitExpirableSemaphore(words.get(1));
                return operate(permits, words.get(2), words.subList(3, words.size()));
            case "pairs":
                return Rush.pairs(Way.to(client(words.get(0)), words.get(1), words.get(2)), Long.parseLong(words.get(3)));
            case "rush":
                return rush(words);
            default:
                RLock lock = lock(client(words.get(0)), words.get(1), words.get(2));
                return operate(lock, command, words.subList(3, words.size()));
        }
    }

    /** The lock operations; all times are milliseconds. */
    private static Object operate(RLock lock, String operation, List<String> words) throws Exception {
        switch (operation) {
            case "lock":
                lock.lock();
                return "locked";
            case "lockFor":
                lock.lock(Long.parseLong(words.get(0)), TimeUnit.MILLISECONDS);
                return "locked";
            case "tryLock":
                long wait = Long.parseLong(words.get(0));
                long lease = Long.parseLong(words.get(1));
                return lock.tryLock(wait, lease, TimeUnit.MILLISECONDS);
            case "unlock":
                lock.unlock();
                return "unlocked";
            case "forceUnlock":
                return lock.forceUnlock();
            case "isLocked":
                return lock.isLocked();
            case "isHeldByCurrentThread":
                return lock.isHeldByCurrentThread();
            case "getHoldCount":
                return lock.getHoldCount();
            case "remainTimeToLive":
                return lock.remainTimeToLive();
            // Of fenced locks, which are not there in every generation.
            case "lockAndGetToken":
            case "getToken":
                return Class.forName("org.redisson.api.RFencedLock").getMethod(operation).invoke(lock);
            default:
                throw new IllegalArgumentException("no operation " + operation);
        }
    }

    /** The operations of a latch. */
    private static Object operate(RCountDownLatch latch, String operation, List<String> words) throws Exception {
        switch (operation) {
            case "trySetCount":
                return latch.trySetCount(Long.parseLong(words.get(0)));
            case "countDown":
                latch.countDown();
                return "counted";
            case "getCount":
                return latch.getCount();
            case "await":
                return latch.await(Long.parseLong(words.get(0)), TimeUnit.MILLISECONDS);
            case "delete":
                return latch.delete();
            default:
                throw new IllegalArgumentException("no operation " + operation);
        }
    }

    /** The operations of a semaphore. */
    private static Object operate(RSemaphore semaphore, String operation, List<String> words) throws Exception {
        int permits = words.isEmpty() ? 0 : Integer.parseInt(words.get(0));
        switch (operation) {
            case "trySetPermits":
                return semaphore.trySetPermits(permits);
            case "acquire":
                semaphore.acquire(permits);
                return "acquired";
            case "tryAcquire":
                return semaphore.tryAcquire(permits, Long.parseLong(words.get(1)), TimeUnit.MILLISECONDS);
            case "release":
                semaphore.release(permits);
                return "released";
            case "availablePermits":
                return semaphore.availablePermits();
            case "drainPermits":
                return semaphore.drainPermits();
            case "addPermits":
                semaphore.addPermits(permits);
                return "added";
            case "delete":
                return semaphore.delete();
            default:
                throw new IllegalArgumentException("no operation " + operation);
        }
    }

    /** The operations of a semaphore whose permits have ids; all times are milliseconds. */
    private static Object operate(RPermitExpirableSemaphore semaphore, String operation, List<String> words)
            throws Exception {
        switch (operation) {
            case "trySetPermits":
                return semaphore.trySetPermits(Integer.parseInt(words.get(0)));
            case "acquire":
                return semaphore.acquire();
            case "acquireFor":
                return semaphore.acquire(Long.parseLong(words.get(0)), TimeUnit.MILLISECONDS);
            case "tryAcquire":
                return semaphore.tryAcquire(Long.parseLong(words.get(0)), TimeUnit.MILLISECONDS);
            case "release":
                return semaphore.tryRelease(words.get(0));
            case "availablePermits":
                return semaphore.availablePermits();
            case "addPermits":
                semaphore.addPermits(Integer.parseInt(words.get(0)));
                return "added";
            case "updateLeaseTime":
                return semaphore.updateLeaseTime(words.get(0), Long.parseLong(words.get(1)), TimeUnit.MILLISECONDS);
            case "delete":
                return semaphore.delete();
            default:
                throw new IllegalArgumentException("no operation " + operation);
        }
    }

    private static String rush(List<String> words) throws Exception {
        int threads = Integer.parseInt(words.get(3));
        List<Way> ways = new ArrayList<>();
        for (String name : words.get(0).split(" ")) {
            for (int i = 0; i < threads; i++) {
                ways.add(Way.to(client(name), words.get(1), words.get(2)));
            }
        }
        return Rush.rush(ways, Long.parseLong(words.get(4)), Long.parseLong(words.get(5)));
    }

    private static RedissonClient client(String name) {
        RedissonClient client = CLIENTS.get(name);
        if (client == null) {
            throw new IllegalArgumentException("no client " + name);
        }
        return client;
    }

    static RLock lock(RedissonClient client, String kind, String name) throws ReflectiveOperationException {
        switch (kind) {
            case "plain":
                return client.getLock(name);
            case "read":
                return client.getReadWriteLock(name).readLock();
            case "write":
                return client.getReadWriteLock(name).writeLock();
            case "fair":
                return client.getFairLock(name);
            // Not there in every generation.
            case "spin":
                return (RLock) RedissonClient.class.getMethod("getSpinLock", String.class).invoke(client, name);
            case "fenced":
                return (RLock) RedissonClient.class.getMethod("getFencedLock", String.class).invoke(client, name);
            default:
                throw new IllegalArgumentException("no kind " + kind);
        }
    }

    private static long count(RLock lock, RedissonClient client, String counter, int times) {
        RBucket<String> bucket = client.getBucket(counter, StringCodec.INSTANCE);
        for (int i = 0; i < times; i++) {
            lock.lock();
            try {
                String value = bucket.get();
                bucket.set(String.valueOf(value == null ? 1 : Long.parseLong(value) + 1));
            } finally {
                lock.unlock();
            }
        }
        return times;
    }

    private static String open(List<String> words) throws Exception {
        String prefix = words.get(5);
        Config config = new Config();
        if (!words.get(1).equals("default")) {
            config.setThreads(8);
            config.setNettyThreads(2);
        }
        config.setLockWatchdogTimeout(Long.parseLong(words.get(3)));
        Long fairWait = Long.getLong("fair.wait");
        if (fairWait != null) {
            // Not there in every generation.
            Config.class.getMethod("setFairLockWaitTimeout", long.class).invoke(config, fairWait);
        }
        BaseConfig<?> servers = servers(config, words.get(1), words.get(2).split(" "));
        servers.setTimeout(Integer.parseInt(words.get(4)));
        if (!prefix.isEmpty()) {
            setPrefix(config, servers, prefix);
        }
        RedissonClient client = Redisson.create(config);
        CLIENTS.put(words.get(0), client);
        return "opened";
    }

    /** The servers of a mode: {@code single}, {@code default}, {@code cluster}, or the name that sentinels have for a master. */
    private static BaseConfig<?> servers(Config config, String mode, String[] urls) {
        switch (mode) {
            case "default":
                return config.useSingleServer().setAddress(urls[0]);
            case "single":
                SingleServerConfig server = config.useSingleServer();
                server.setAddress(urls[0]);
                server.setConnectionMinimumIdleSize(1);
                server.setConnectionPoolSize(16);
                server.setSubscriptionConnectionMinimumIdleSize(1);
                server.setSubscriptionConnectionPoolSize(4);
                return server;
            case "cluster":
                return small(config.useClusterServers().addNodeAddress(urls).setScanInterval(1000));
            default:
                return small(config.useSentinelServers().setMasterName(mode).addSentinelAddress(urls));
        }
    }

    private static BaseConfig<?> small(BaseMasterSlaveServersConfig<?> servers) {
        servers.setMasterConnectionMinimumIdleSize(1);
        servers.setMasterConnectionPoolSize(16);
        servers.setSlaveConnectionMinimumIdleSize(1);
        servers.setSlaveConnectionPoolSize(16);
        servers.setSubscriptionConnectionMinimumIdleSize(1);
        servers.setSubscriptionConnectionPoolSize(4);
        return servers;
    }

    private static String id(RedissonClient client) throws ReflectiveOperationException {
        return (String) client.getClass().getMethod("getId").invoke(client);
    }

    /** Sets a name mapper, which is a setting of the server or of the whole client, or is not there at all. */
    private static void setPrefix(Config config, BaseConfig<?> servers, String prefix)
            throws ReflectiveOperationException {
        Class<?> mapper;
        try {
            mapper = Class.forName("org.redisson.api.NameMapper");
        } catch (ClassNotFoundException absent) {
            try {
                mapper = Class.forName("org.redisson.config.NameMapper");
            } catch (ClassNotFoundException absentToo) {
                throw new UnsupportedOperationException("no NameMapper");
            }
        }
        boolean once = prefix.startsWith("once=");
        String text = once ? prefix.substring("once=".length()) : prefix;
        Object prefixing = Proxy.newProxyInstance(Driver.class.getClassLoader(), new Class<?>[] {mapper},
                (self, method, words) -> switch (method.getName()) {
                    case "map" -> once && ((String) words[0]).startsWith(text) ? words[0] : text + words[0];
                    case "unmap" -> ((String) words[0]).substring(text.length());
                    default -> throw new UnsupportedOperationException(method.getName());
                });
        if (once) {
            try {
                Class<?> own = Class.forName("org.redisson.config.PrefixNameMapper");
                prefixing = own.getConstructor().newInstance();
                own.getMethod("setPrefix", String.class).invoke(prefixing, text);
            } catch (ClassNotFoundException absent) {
                // Before 4.8.0 its rule is written by the user.
            }
        }
        for (Object target : List.of(config, servers)) {
            for (Method method : target.getClass().getMethods()) {
                if (method.getName().equals("setNameMapper")) {
                    method.invoke(target, prefixing);
                    return;
                }
            }
        }
        throw new UnsupportedOperationException("no setNameMapper");
    }
}
