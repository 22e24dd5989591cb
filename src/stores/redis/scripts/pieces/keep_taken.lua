-- Has the notes of the permits that are taken end with the semaphore, whose end may have been put off, lifted or set since:
-- without the notes no permit comes back, and behind that end they would give permits to the next semaphore of this name.
local function keep_taken(taken, life)
    if type(life) ~= 'number' then
        return
    elseif life > 0 then
        redis.pcall('PEXPIRE', taken, string.format('%.0f', life))
    elseif life == -1 then
        local left = redis.pcall('PTTL', taken)
        if type(left) == 'number' and left >= 0 then
            redis.pcall('PEXPIRE', taken, 10000000000000)
        end
    end
end
