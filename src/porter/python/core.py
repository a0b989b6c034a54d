"""HomeClaw's core object, as far as it makes sense for a plugin that runs without HomeClaw."""

import collections.abc
import sys

NO_MODEL = (
    "Guild Hall has no language model for plugins to call: return the text, and let the capability's "
    "post_process have it processed"
)
MEDIA = ("image_path", "video_path", "audio_path", "images", "videos", "audios")


class Done(collections.abc.Coroutine):
    """Has happened already. It may be awaited, and need not be."""

    def send(self, _value):
        raise StopIteration

    def throw(self, *error):
        raise error[0]

    def close(self):
        pass

    def __await__(self):
        return iter(())


class CoreInterface:
    """HomeClaw's core, as plugins see it. What is sent to a channel is what the call has said."""

    # Takes a text, the request that it answers, and paths of media; `calls` puts it here.
    hear = None

    def send_response_to_request_channel(self, response="", request=None, **media):
        return self._say(response, request, media)

    def send_response_for_plugin(self, response="", request=None, **media):
        return self._say(response, request, media)

    def send_response_to_latest_channel(self, response="", **media):
        return self._say(response, None, media)

    def send_response_to_channel_by_key(self, key="", response="", **media):
        return self._say(response, None, media)

    def deliver_to_user(self, user_id="", text="", **media):
        return self._say(text, None, media)

    def _say(self, text, request, media):
        media = {name: value for name, value in media.items() if name in MEDIA and value}
        if self.hear is None:
            sys.stderr.write("the plugin says, before it is called: %s\n" % (text,))
        else:
            self.hear("" if text is None else str(text), request, media)
        return Done()

    def check_permission(self, *_given, **_named):
        return True

    def get_latest_chat_info(self):
        return None, None, None

    def get_latest_chats(self, *_given, **_named):
        return []

    def get_latest_chats_by_role(self, *_given, **_named):
        return []

    def get_session_transcript(self, *_given, **_named):
        return []

    def add_chat_history(self, *_given, **_named):
        return None

    def add_chat_history_by_role(self, *_given, **_named):
        return None

    def add_user_input_to_memory(self, *_given, **_named):
        return Done()

    def get_session_id(self, *_given, **_named):
        return ""

    def get_run_id(self, *_given, **_named):
        return ""

    async def openai_chat_completion(self, *_given, **_named):
        raise RuntimeError(NO_MODEL)
