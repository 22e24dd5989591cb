-- `free` is the number of free permits of a semaphore; false if the semaphore does not exist.
local free = call('GET', key)
if free and not string.find(free, '^%-?%d+$') then
    return redis.error_reply('WRONGTYPE this string is no count')
end
