-- A score is a time, ms. Its fraction times 2048 is the time of the member's last request: tenths of a second modulo 2047,
-- plus 1; 0 if unknown. Redisson adds and subtracts integers, which keep the fraction.

-- The score of a time, for a member whose request runs now.
local function time_of(score, now)
    return string.format('%.17g', math.floor(score) + (math.floor(now / 100) % 2047 + 1) / 2048)
end

-- The minimum time since the member's last request, ms, by its score; false if it is unknown, or the clock was set back
-- since.
local function silence_of(score, now)
    local noted = score % 1 * 2048
    local silence = noted > 0 and (math.floor(now / 100) - noted + 1) % 2047
    return silence and silence < 1024 and (silence - 1) * 100
end

